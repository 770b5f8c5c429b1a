#include "server/search/testing/reference_search.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "server/cost/shard_features.h"
#include "server/evaluate/price_plan.h"
#include "server/search/placement/placement.h"

namespace neuroshard {
namespace {

// The paper's search in its own order, without any sharing of work.
class Reference {
 public:
  Reference(const PlanRequest& request, const BoundCostModel& model)
      : request_(request), model_(model), available_(AvailableBytes(request)) {}

  ReferenceResult Run() {
    const SearchOptions& options = request_.search;
    std::vector<std::vector<Piece>> beam = {WholeTables(request_)};
    ReferenceResult best;
    GreedyGrid(beam.front(), best);
    best.uncut_found = !best.plan.tables.empty();
    for (int level = 0; level < options.max_length; ++level) {
      std::vector<std::pair<double, std::vector<Piece>>> children;
      for (const std::vector<Piece>& pieces : beam) {
        for (const std::size_t i : Candidates(pieces)) {
          std::vector<Piece> child = pieces;
          child[i].cols /= 2;
          child.push_back({child[i].table, child[i].col_offset + child[i].cols, child[i].cols});
          const double cost_ms = GreedyGrid(child, best);
          children.emplace_back(cost_ms, std::move(child));
        }
      }
      std::stable_sort(children.begin(), children.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      beam.clear();
      for (auto& [cost_ms, pieces] : children) {
        if (beam.size() < static_cast<std::size_t>(options.beam_width)) beam.push_back(pieces);
      }
    }
    return best;
  }

 private:
  struct Represented {
    std::vector<float> phi;
    CommLoad load;
  };

  const Represented& Represent(const Piece& piece) {
    Represented& represented = represented_[{piece.table, piece.cols}];
    std::vector<float>& phi = represented.phi;
    if (phi.empty()) {
      const Table& table = request_.tables[static_cast<std::size_t>(piece.table)];
      const ShardFeatures features = FeaturesOf(table, {}, table.num_embeddings, piece.cols);
      phi.resize(static_cast<std::size_t>(model_.representation_width()));
      model_.Represent(std::span(&features, 1), phi, std::span(&represented.load, 1));
    }
    return represented;
  }

  float FusedCost(const std::vector<Piece>& pieces) {
    if (pieces.empty()) return 0;
    std::vector<float> sum(static_cast<std::size_t>(model_.representation_width()), 0.0F);
    for (const Piece& piece : pieces) {
      const std::vector<float>& phi = Represent(piece).phi;
      for (std::size_t w = 0; w < sum.size(); ++w) sum[w] += phi[w];
    }
    ComputeCost cost;
    model_.ComputeCosts(sum, std::span(&cost, 1));
    return cost.total_ms;
  }

  std::int64_t Bytes(const std::vector<Piece>& pieces) const {
    std::int64_t bytes = 0;
    for (const Piece& piece : pieces) bytes += PieceBytes(request_, piece.table, piece.cols);
    return bytes;
  }

  static std::int64_t Dims(const std::vector<Piece>& pieces) {
    std::int64_t dims = 0;
    for (const Piece& piece : pieces) dims += piece.cols;
    return dims;
  }

  std::vector<std::size_t> Candidates(const std::vector<Piece>& pieces) {
    std::set<std::size_t> chosen;
    for (const bool by_bytes : {true, false}) {
      std::vector<std::pair<double, std::size_t>> order;
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const double key = by_bytes ? static_cast<double>(Bytes({pieces[i]}))
                                    : static_cast<double>(FusedCost({pieces[i]}));
        order.emplace_back(-key, i);
      }
      std::sort(order.begin(), order.end());
      for (std::size_t j = 0;
           j < std::min(order.size(), static_cast<std::size_t>(request_.search.num_candidates));
           ++j) {
        chosen.insert(order[j].second);
      }
    }
    std::vector<std::size_t> candidates;
    for (const std::size_t i : chosen) {
      if (pieces[i].cols % 2 == 0 && pieces[i].cols / 2 % kColumnAlignment == 0) {
        candidates.push_back(i);
      }
    }
    return candidates;
  }

  double GreedyGrid(const std::vector<Piece>& pieces, ReferenceResult& best) {
    double cheapest_ms = std::numeric_limits<double>::infinity();
    const int steps = request_.search.search_steps;
    for (int i = 0; i < steps; ++i) {
      const double factor = steps == 1 ? 1.0 : 1.0 + 0.5 * i / (steps - 1);
      Placement placement{pieces, std::vector<int>(pieces.size(), -1)};
      const double cost_ms = Greedy(factor, placement);
      cheapest_ms = std::min(cheapest_ms, cost_ms);
      if (cost_ms < best.cost_ms) {
        best.cost_ms = cost_ms;
        best.plan = BuildPlan(request_, placement);
      }
    }
    return cheapest_ms;
  }

  double Greedy(double factor, Placement& placement) {
    const std::size_t num_ranks = available_.size();
    const double limit =
        factor * (static_cast<double>(Dims(placement.pieces)) / static_cast<double>(num_ranks));
    // Sorted ascending and taken from the end: of equal costs the later piece comes first.
    std::vector<std::pair<float, std::size_t>> order;
    for (std::size_t i = 0; i < placement.pieces.size(); ++i) {
      order.emplace_back(FusedCost({placement.pieces[i]}), i);
    }
    std::sort(order.rbegin(), order.rend());
    std::vector<std::vector<Piece>> on_rank(num_ranks);
    for (const auto& [single_cost, i] : order) {
      int chosen = -1;
      float chosen_cost = 0;
      std::int64_t chosen_bytes = 0;
      for (std::size_t r = 0; r < num_ranks; ++r) {
        std::vector<Piece> with = on_rank[r];
        with.push_back(placement.pieces[i]);
        if (Bytes(with) > available_[r]) continue;
        if (static_cast<double>(Dims(with)) > limit) continue;
        const float cost = FusedCost(on_rank[r]);  // without the piece
        const std::int64_t bytes = Bytes(on_rank[r]);
        if (chosen < 0 || cost < chosen_cost || (cost == chosen_cost && bytes < chosen_bytes)) {
          chosen = static_cast<int>(r);
          chosen_cost = cost;
          chosen_bytes = bytes;
        }
      }
      if (chosen < 0) return std::numeric_limits<double>::infinity();
      on_rank[static_cast<std::size_t>(chosen)].push_back(placement.pieces[i]);
      placement.rank_of_piece[i] = chosen;
    }
    std::vector<float> compute_ms;
    std::vector<float> forward_loads;
    std::vector<float> backward_loads;
    for (const std::vector<Piece>& pieces : on_rank) {
      compute_ms.push_back(FusedCost(pieces));
      CommLoad sum;
      for (const Piece& piece : pieces) sum += Represent(piece).load;
      forward_loads.push_back(sum.forward);
      backward_loads.push_back(sum.backward);
    }
    PlacementPrices prices;
    PricePlacements(model_, compute_ms, forward_loads, backward_loads, prices);
    return prices.cost_ms.front();
  }

  const PlanRequest& request_;
  const BoundCostModel& model_;
  const std::vector<std::int64_t> available_;
  std::map<std::pair<int, std::int64_t>, Represented> represented_;
};

}  // namespace

ReferenceResult ReferenceSearch(const PlanRequest& request, const BoundCostModel& model) {
  return Reference(request, model).Run();
}

}  // namespace neuroshard
