#include "server/evaluate/explain_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "common/base/positions.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table_names.h"
#include "server/cost/shard_features.h"
#include "server/evaluate/price_plan.h"
#include "server/evaluate/relayouts.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {
namespace {

constexpr std::size_t kMaxTables = 64;
constexpr std::size_t kMaxRankCosts = 8'000'000;
constexpr std::size_t kLayoutsOfTable = 64;  // about as many as RelayoutFinder proposes

// Shards of tables, each distinct shape once, with their representations.
class ShardShapes {
 public:
  // Returns the number of a shape. `table` is the caller's number for the table; one table, one
  // number.
  int Note(int table, const Table& of, const ShardLayout& layout, const Shard& shard) {
    const auto [at, is_new] =
        number_of_.emplace(Shape(table, layout.type, layout.kernel, layout.row_shards,
                                 layout.cache_load_factor, shard.rows, shard.cols),
                           static_cast<int>(loads_.size() + noted_.size()));
    if (is_new) noted_.push_back(FeaturesOf(of, layout, shard.rows, shard.cols));
    return at->second;
  }

  // Represents what was noted since the last call.
  void Represent(const BoundCostModel& model) {
    if (noted_.empty()) return;
    const std::size_t width = static_cast<std::size_t>(model.representation_width());
    const std::size_t known = loads_.size();
    loads_.resize(known + noted_.size());
    phi_.resize(loads_.size() * width);
    model.Represent(noted_, std::span(phi_).subspan(known * width),
                    std::span(loads_).subspan(known));
    noted_.clear();
  }

  // Returns the number of what several shapes come to together, as if it were a shape.
  int Sum(const std::vector<int>& shapes, const BoundCostModel& model) {
    Represent(model);
    const std::size_t width = static_cast<std::size_t>(model.representation_width());
    phi_.resize(phi_.size() + width);
    CommLoad& load = loads_.emplace_back();
    float* const sum = phi_.data() + phi_.size() - width;
    for (const int shape : shapes) {
      const float* const of_shape = phi_.data() + static_cast<std::size_t>(shape) * width;
      for (std::size_t w = 0; w < width; ++w) sum[w] += of_shape[w];
      load += loads_[static_cast<std::size_t>(shape)];
    }
    return static_cast<int>(loads_.size()) - 1;
  }

  const std::vector<float>& phi() const { return phi_; }
  const std::vector<CommLoad>& loads() const { return loads_; }

 private:
  using Shape =
      std::tuple<int, ShardingType, ComputeKernel, int, double, std::int64_t, std::int64_t>;

  std::map<Shape, int> number_of_;
  std::vector<ShardFeatures> noted_;
  std::vector<float> phi_;
  std::vector<CommLoad> loads_;
};

class Explainer {
 public:
  Explainer(const PlanRequest& request, const Plan& plan, const BoundCostModel& model)
      : request_(request),
        plan_(plan),
        model_(model),
        num_ranks_(request.topology.devices.size()),
        names_(request.tables),
        table_of_(TablesOf(plan, request.tables)),
        default_types_(model.sharding_types()),
        rules_(request, default_types_),
        finder_(request, default_types_, rules_, plan),
        held_(num_ranks_),
        ranks_(num_ranks_) {
    for (std::size_t e = 0; e < plan_.tables.size(); ++e) {
      const ShardLayout layout = LayoutOf(plan_.tables[e], rules_.row_cut(TableIndex(e)));
      for (const Shard& shard : plan_.tables[e].shards) {
        At(held_, shard.rank)
            .push_back({e, shapes_.Note(TableIndex(e), TableOf(e), layout, shard)});
      }
    }
    std::vector<std::vector<int>> sets;
    for (std::size_t rank = 0; rank < num_ranks_; ++rank) sets.push_back(HeldBy(rank, kNoEntry));
    Replace(Positions(num_ranks_), sets, ranks_);
    plan_exchanges_ms_ = ExchangesMs(ranks_);
  }

  std::vector<TableExplanation> Run(const PlanCost& cost) {
    return Mapped(Chosen(cost), [this](std::size_t entry) { return Explain(entry); });
  }

 private:
  static constexpr std::size_t kNoEntry = std::numeric_limits<std::size_t>::max();

  struct HeldShard {
    std::size_t entry;
    int shape;
  };

  const Table& TableOf(std::size_t entry) const { return At(request_.tables, TableIndex(entry)); }
  int TableIndex(std::size_t entry) const { return table_of_[entry]; }

  // Entries of the plan, the largest first: half of them the largest tables there are, the others
  // those on the costliest ranks.
  std::vector<std::size_t> Chosen(const PlanCost& cost) const {
    const std::size_t most =
        std::clamp<std::size_t>(kMaxRankCosts / (num_ranks_ * kLayoutsOfTable), 1, kMaxTables);
    const std::vector<std::size_t> by_size =
        PositionsDescending(plan_.tables.size(), [&](std::size_t e) { return WeightBytes(e); });
    std::vector<std::size_t> chosen(
        by_size.begin(),
        by_size.begin() + static_cast<std::ptrdiff_t>(std::min((most + 1) / 2, by_size.size())));
    std::vector<std::size_t> others(by_size.begin() + static_cast<std::ptrdiff_t>(chosen.size()),
                                    by_size.end());
    std::ranges::stable_sort(others, std::ranges::greater(),
                             [&](std::size_t e) { return CostliestRankMs(e, cost); });
    if (others.size() > most - chosen.size()) others.resize(most - chosen.size());
    chosen.insert(chosen.end(), others.begin(), others.end());
    std::ranges::stable_sort(chosen, std::ranges::greater(),
                             [&](std::size_t e) { return WeightBytes(e); });
    return chosen;
  }

  double WeightBytes(std::size_t entry) const {
    const Table& table = TableOf(entry);
    return static_cast<double>(table.num_embeddings) * static_cast<double>(table.embedding_dim) *
           ElementBytes(table.weight_dtype);
  }

  double CostliestRankMs(std::size_t entry, const PlanCost& cost) const {
    double costliest = 0;
    for (const Shard& shard : plan_.tables[entry].shards) {
      costliest = std::max(costliest, At(cost.ranks, shard.rank).total_ms());
    }
    return costliest;
  }

  // The shapes that a rank holds, in plan order, without those of an entry.
  std::vector<int> HeldBy(std::size_t rank, std::size_t without) const {
    std::vector<int> shapes;
    for (const HeldShard& held : held_[rank]) {
      if (held.entry != without) shapes.push_back(held.shape);
    }
    return shapes;
  }

  // Prices sets of shapes and puts them in place of `cells` of placements, [placement, rank].
  void Replace(const std::vector<std::size_t>& cells, const std::vector<std::vector<int>>& sets,
               std::vector<ShardSetCost>& placements) {
    shapes_.Represent(model_);
    const auto kinds =
        Mapped<int>(cells, [&](std::size_t cell) { return model_.kind(cell % num_ranks_); });
    const std::vector<ShardSetCost> costs =
        model_.CostsOfSets(shapes_.phi(), shapes_.loads(), sets, kinds);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      placements[cells[i]] = {costs[i].compute * model_.compute_scale(cells[i] % num_ranks_),
                              costs[i].load};
    }
  }

  // Returns what one placement, [rank], pays for its exchanges.
  double ExchangesMs(std::span<const ShardSetCost> ranks) const {
    ShardKinds kinds;
    for (const ShardSetCost& rank : ranks) kinds |= rank.load.kinds;
    return model_.comm().ExchangesMs(kinds.exchanges);
  }

  TableExplanation Explain(std::size_t entry) {
    const TablePlan& of = plan_.tables[entry];
    std::vector<std::size_t> own_ranks;
    for (const Shard& shard : of.shards) own_ranks.push_back(static_cast<std::size_t>(shard.rank));
    SortUnique(own_ranks);
    std::vector<ShardSetCost> without = ranks_;
    Replace(own_ranks, Mapped(own_ranks, [&](std::size_t rank) { return HeldBy(rank, entry); }),
            without);
    PricePlacements(model_, without, 0, prices_);
    std::vector<double> rank_cost_ms;
    for (std::size_t r = 0; r < num_ranks_; ++r) {
      rank_cost_ms.push_back(static_cast<double>(without[r].compute.total_ms) +
                             prices_.backward_comm_ms[r] + prices_.forward_comm_ms[r]);
    }
    const std::vector<Relayouts> relayouts = finder_.Find(TableIndex(entry), of, rank_cost_ms);
    return ExplanationOf(entry, relayouts, PlacementsOf(entry, relayouts, without));
  }

  // What ranks cost, [layout, rank], with each layout beside what they hold without the entry.
  std::vector<ShardSetCost> PlacementsOf(std::size_t entry, const std::vector<Relayouts>& relayouts,
                                         const std::vector<ShardSetCost>& without) {
    std::map<int, int> held;  // by rank: summed once, whatever the number of layouts
    for (const Relayouts& type : relayouts) {
      for (const PlacedTable& layout : type.layouts) {
        for (const Shard& shard : layout.shards) {
          if (held.contains(shard.rank)) continue;
          held[shard.rank] =
              shapes_.Sum(HeldBy(static_cast<std::size_t>(shard.rank), entry), model_);
        }
      }
    }
    std::vector<ShardSetCost> placements;
    std::vector<std::size_t> cells;  // that change, and what they hold
    std::vector<std::vector<int>> sets;
    for (const Relayouts& type : relayouts) {
      for (const auto& [layout, shards] : type.layouts) {
        std::map<int, std::size_t> set_of_rank;
        for (const Shard& shard : shards) {
          const auto [at, is_new] = set_of_rank.emplace(shard.rank, sets.size());
          if (is_new) {
            cells.push_back(placements.size() + static_cast<std::size_t>(shard.rank));
            sets.push_back({held[shard.rank]});
          }
          sets[at->second].push_back(
              shapes_.Note(TableIndex(entry), TableOf(entry), layout, shard));
        }
        placements.insert(placements.end(), without.begin(), without.end());
      }
    }
    Replace(cells, sets, placements);
    return placements;
  }

  // `placements` are PlacementsOf.
  TableExplanation ExplanationOf(std::size_t entry, const std::vector<Relayouts>& relayouts,
                                 std::span<const ShardSetCost> placements) {
    PricePlacements(model_, placements, 0, prices_);
    TableExplanation explanation;
    explanation.table = names_.ReferenceTo(TableIndex(entry));
    explanation.sharding_type = plan_.tables[entry].sharding_type;
    std::size_t row = 0;
    for (const Relayouts& type : relayouts) {
      TableAlternative alternative;
      alternative.sharding_type = type.type;
      alternative.num_shards = 0;
      alternative.reason = type.reason;
      for (const PlacedTable& layout : type.layouts) {
        const double cost_ms = prices_.cost_ms[row] + model_.fixed_rank_ms();
        const auto ranks = placements.subspan(row++ * num_ranks_, num_ranks_);
        if (alternative.embedding_cost_ms.has_value() &&
            cost_ms >= *alternative.embedding_cost_ms) {
          continue;
        }
        alternative.embedding_cost_ms = cost_ms;
        if (model_.prices_exchanges()) {
          alternative.more_exchanges_ms = ExchangesMs(ranks) - plan_exchanges_ms_;
        }
        alternative.num_shards = static_cast<int>(layout.shards.size());
      }
      explanation.alternatives.push_back(std::move(alternative));
    }
    std::ranges::stable_sort(explanation.alternatives, {}, [](const TableAlternative& of) {
      return of.embedding_cost_ms.value_or(std::numeric_limits<double>::infinity());
    });
    return explanation;
  }

  const PlanRequest& request_;
  const Plan& plan_;
  const BoundCostModel& model_;
  const std::size_t num_ranks_;
  const TableNames names_;
  const std::vector<int> table_of_;
  const TypeSet default_types_;
  const CompiledRules rules_;
  RelayoutFinder finder_;
  ShardShapes shapes_;
  std::vector<std::vector<HeldShard>> held_;  // by rank, in plan order
  std::vector<ShardSetCost> ranks_;           // of the plan
  double plan_exchanges_ms_ = 0;
  PlacementPrices prices_;  // of the placements that were priced last
};

}  // namespace

StatusOr<std::vector<TableExplanation>> ExplainPlan(const PlanRequest& request, const Plan& plan,
                                                    const BoundCostModel& model) {
  NS_ASSIGN_OR_RETURN(const PlanCost cost, PricePlan(request, plan, model));
  return Explainer(request, plan, model).Run(cost);
}

}  // namespace neuroshard
