#include "server/evaluate/explain_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>
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

// Representations of the shards of many tables, each distinct shape once: add all shapes with Note,
// then call Represent once. Shapes are referred to by the number that Note returned.
class ShardShapes {
 public:
  // `table` is the caller's number for the table; one table, one number.
  std::size_t Note(int table, const Table& of, const ShardLayout& layout, const Shard& shard) {
    const auto [at, is_new] =
        number_of_.emplace(Shape(table, layout.type, layout.kernel, layout.row_shards,
                                 layout.cache_load_factor, shard.rows, shard.cols),
                           features_.size());
    if (is_new) features_.push_back(FeaturesOf(of, layout, shard.rows, shard.cols));
    return at->second;
  }

  void Represent(const BoundCostModel& model) {
    width_ = static_cast<std::size_t>(model.representation_width());
    phi_.resize(features_.size() * width_);
    loads_.resize(features_.size());
    if (!features_.empty()) model.Represent(features_, phi_, loads_);
  }

  std::span<const float> Phi(std::size_t shape) const {
    return std::span(phi_).subspan(shape * width_, width_);
  }
  const CommLoad& Load(std::size_t shape) const { return loads_[shape]; }

 private:
  using Shape =
      std::tuple<int, ShardingType, ComputeKernel, int, double, std::int64_t, std::int64_t>;

  std::map<Shape, std::size_t> number_of_;
  std::vector<ShardFeatures> features_;
  std::size_t width_ = 0;
  std::vector<float> phi_;
  std::vector<CommLoad> loads_;
};

// Runs the head on sums of phi, one for each of the ranks.
std::vector<float> ComputeMs(const BoundCostModel& model, std::span<const float> sums,
                             const std::vector<std::size_t>& ranks) {
  if (ranks.empty()) return {};
  std::vector<int> kinds;
  for (const std::size_t rank : ranks) kinds.push_back(model.kind(rank));
  std::vector<ComputeCost> costs(ranks.size());
  model.ComputeCosts(sums, costs, kinds);
  std::vector<float> ms;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ms.push_back(costs[i].total_ms * model.compute_scale(ranks[i]));
  }
  return ms;
}

// Placements that differ from each other in a few shards, priced together: the head runs only on
// ranks that change, for all of them at once.
class PlacementBatch {
 public:
  explicit PlacementBatch(const BoundCostModel& model) : model_(model) {}

  // Begins a placement with what the ranks cost to compute and their loads, one of each a rank.
  void Begin(std::span<const float> compute_ms, std::span<const CommLoad> loads) {
    begin_ = compute_ms_.size();
    row_of_rank_.clear();
    compute_ms_.insert(compute_ms_.end(), compute_ms.begin(), compute_ms.end());
    ShardKinds& kinds = kinds_.emplace_back();
    for (const CommLoad& load : loads) {
      forward_.push_back(load.forward);
      backward_.push_back(load.backward);
      kinds |= load.kinds;
    }
  }

  // Adds a shard to the placement begun last. `held` is the rank's sum of phi in Begin's
  // placement, all zero for an empty rank.
  void Add(std::size_t rank, std::span<const float> held, std::span<const float> phi,
           const CommLoad& load) {
    const auto [at, is_new] = row_of_rank_.emplace(rank, cells_.size());
    const std::size_t cell = begin_ + rank;
    if (is_new) {
      cells_.push_back(cell);
      ranks_.push_back(rank);
      sums_.insert(sums_.end(), held.begin(), held.end());
    }
    float* sum = sums_.data() + at->second * phi.size();
    for (std::size_t w = 0; w < phi.size(); ++w) sum[w] += phi[w];
    forward_[cell] += load.forward;
    backward_[cell] += load.backward;
    kinds_.back() |= load.kinds;
  }

  // In the order of Begin.
  void Price(PlacementPrices& prices) {
    const std::vector<float> changed_ms = ComputeMs(model_, sums_, ranks_);
    for (std::size_t i = 0; i < cells_.size(); ++i) compute_ms_[cells_[i]] = changed_ms[i];
    PricePlacements(model_, compute_ms_, forward_, backward_, prices, kinds_);
  }

  // Of all placements, in the order of Begin.
  const std::vector<ShardKinds>& kinds() const { return kinds_; }

 private:
  const BoundCostModel& model_;
  std::vector<float> compute_ms_;  // [placement, rank], like the loads
  std::vector<float> forward_;
  std::vector<float> backward_;
  std::vector<ShardKinds> kinds_;   // by placement
  std::size_t begin_ = 0;           // of the placement begun last
  std::vector<float> sums_;         // [changed cells, width of phi]
  std::vector<std::size_t> cells_;  // positions in compute_ms_
  std::vector<std::size_t> ranks_;  // and their ranks
  // By rank, of the placement begun last: its row in sums_.
  std::unordered_map<std::size_t, std::size_t> row_of_rank_;
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
        width_(static_cast<std::size_t>(model.representation_width())),
        default_types_(model.sharding_types()),
        rules_(request, default_types_),
        finder_(request, default_types_, rules_, plan),
        held_(num_ranks_),
        phi_(num_ranks_ * width_),
        loads_(num_ranks_),
        compute_ms_(num_ranks_) {
    AddUp();
    ShardKinds kinds;
    for (const CommLoad& load : loads_) kinds |= load.kinds;
    plan_exchanges_ms_ = model.comm().ExchangesMs(kinds.exchanges);
  }

  std::vector<TableExplanation> Run(const PlanCost& cost) {
    return Mapped(Chosen(cost), [this](std::size_t entry) { return Explain(entry); });
  }

 private:
  static constexpr std::size_t kNoEntry = std::numeric_limits<std::size_t>::max();

  struct HeldShard {
    std::size_t entry;
    std::size_t shape;
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

  void AddUp() {
    for (std::size_t e = 0; e < plan_.tables.size(); ++e) {
      const ShardLayout layout = LayoutOf(plan_.tables[e], rules_.row_cut(TableIndex(e)));
      for (const Shard& shard : plan_.tables[e].shards) {
        At(held_, shard.rank)
            .push_back({e, shapes_.Note(TableIndex(e), TableOf(e), layout, shard)});
      }
    }
    shapes_.Represent(model_);
    AddUpRanks(Positions(num_ranks_), kNoEntry);
  }

  // Sums what the ranks hold anew, since floats do not subtract exactly; without one entry. And
  // what they cost to compute, an empty rank nothing.
  void AddUpRanks(const std::vector<std::size_t>& ranks, std::size_t without) {
    std::vector<float> sums;
    std::vector<std::size_t> holders;
    for (const std::size_t rank : ranks) {
      const std::span<float> sum = HeldPhi(rank);
      std::ranges::fill(sum, 0.0F);
      loads_[rank] = {};
      compute_ms_[rank] = 0;
      bool is_empty = true;
      for (const HeldShard& held : held_[rank]) {
        if (held.entry == without) continue;
        const std::span<const float> phi = shapes_.Phi(held.shape);
        for (std::size_t w = 0; w < width_; ++w) sum[w] += phi[w];
        loads_[rank] += shapes_.Load(held.shape);
        is_empty = false;
      }
      if (is_empty) continue;
      holders.push_back(rank);
      sums.insert(sums.end(), sum.begin(), sum.end());
    }
    const std::vector<float> ms = ComputeMs(model_, sums, holders);
    for (std::size_t i = 0; i < holders.size(); ++i) compute_ms_[holders[i]] = ms[i];
  }

  std::span<float> HeldPhi(std::size_t rank) {
    return std::span(phi_).subspan(rank * width_, width_);
  }

  TableExplanation Explain(std::size_t entry) {
    const TablePlan& of = plan_.tables[entry];
    std::vector<std::size_t> ranks;
    for (const Shard& shard : of.shards) ranks.push_back(static_cast<std::size_t>(shard.rank));
    SortUnique(ranks);
    AddUpRanks(ranks, entry);

    PlacementBatch without(model_);
    without.Begin(compute_ms_, loads_);
    without.Price(prices_);
    std::vector<double> rank_cost_ms;
    for (std::size_t r = 0; r < num_ranks_; ++r) {
      rank_cost_ms.push_back(static_cast<double>(compute_ms_[r]) + prices_.backward_comm_ms[r] +
                             prices_.forward_comm_ms[r]);
    }
    const std::vector<Relayouts> relayouts = finder_.Find(TableIndex(entry), of, rank_cost_ms);
    PriceRelayouts(entry, relayouts);

    AddUpRanks(ranks, kNoEntry);
    return ExplanationOf(entry, relayouts);
  }

  void PriceRelayouts(std::size_t entry, const std::vector<Relayouts>& relayouts) {
    ShardShapes shapes;
    std::vector<std::size_t> shape_of;  // of all shards, one after the other
    for (const Relayouts& type : relayouts) {
      for (const auto& [layout, shards] : type.layouts) {
        for (const Shard& shard : shards) {
          shape_of.push_back(shapes.Note(TableIndex(entry), TableOf(entry), layout, shard));
        }
      }
    }
    shapes.Represent(model_);
    PlacementBatch batch(model_);
    std::size_t next = 0;
    for (const Relayouts& type : relayouts) {
      for (const PlacedTable& layout : type.layouts) {
        batch.Begin(compute_ms_, loads_);
        for (const Shard& shard : layout.shards) {
          const std::size_t shape = shape_of[next++];
          const std::size_t rank = static_cast<std::size_t>(shard.rank);
          batch.Add(rank, HeldPhi(rank), shapes.Phi(shape), shapes.Load(shape));
        }
      }
    }
    batch.Price(prices_);
    more_exchanges_ms_.clear();
    for (const ShardKinds& kinds : batch.kinds()) {
      more_exchanges_ms_.push_back(model_.comm().ExchangesMs(kinds.exchanges) - plan_exchanges_ms_);
    }
  }

  // prices_ and more_exchanges_ms_ have a placement for each layout, in their order.
  TableExplanation ExplanationOf(std::size_t entry, const std::vector<Relayouts>& relayouts) const {
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
        const double cost_ms = prices_.cost_ms[row] + model_.exposed_input_dist_fixed_ms();
        const double more_exchanges_ms = more_exchanges_ms_[row++];
        if (alternative.embedding_cost_ms.has_value() &&
            cost_ms >= *alternative.embedding_cost_ms) {
          continue;
        }
        alternative.embedding_cost_ms = cost_ms;
        if (model_.prices_exchanges()) alternative.more_exchanges_ms = more_exchanges_ms;
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
  const std::size_t width_;
  const TypeSet default_types_;
  const CompiledRules rules_;
  RelayoutFinder finder_;
  ShardShapes shapes_;                        // of the plan
  std::vector<std::vector<HeldShard>> held_;  // by rank, in plan order
  // What ranks hold now, without the table that is being explained: [rank, width] and [rank].
  std::vector<float> phi_;
  std::vector<CommLoad> loads_;
  std::vector<float> compute_ms_;
  PlacementPrices prices_;
  std::vector<double> more_exchanges_ms_;  // by placement of prices_
  double plan_exchanges_ms_ = 0;
};

}  // namespace

StatusOr<std::vector<TableExplanation>> ExplainPlan(const PlanRequest& request, const Plan& plan,
                                                    const BoundCostModel& model) {
  NS_ASSIGN_OR_RETURN(const PlanCost cost, PricePlan(request, plan, model));
  return Explainer(request, plan, model).Run(cost);
}

}  // namespace neuroshard
