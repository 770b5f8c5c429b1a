#include "server/cost/cost_model.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <iterator>

#include "server/cost/step_comm.h"

namespace neuroshard {

namespace {

// Of compute, what holds for all kinds. What bounds of costs need is not claimed: it is said of one
// model's ranks, which are alike, and of compute and communication of one model together.
ModelProperties PropertiesOf(const BoundCostModel& comm, std::span<const BoundCostModel> kinds) {
  ModelProperties properties = comm.properties();
  if (kinds.size() == 1 && kinds.front().compute() == comm.compute()) return properties;
  properties.splits_compute = true;
  properties.additive_compute = true;
  properties.convex_compute = kinds.size() == 1 && kinds.front().properties().convex_compute;
  properties.monotone_shard_costs = false;
  for (const BoundCostModel& kind : kinds) {
    const ModelProperties& of_kind = kind.properties();
    properties.splits_compute &= of_kind.splits_compute;
    properties.additive_compute &= of_kind.additive_compute;
    properties.interval_coverage =
        std::min(properties.interval_coverage, of_kind.interval_coverage);
  }
  return properties;
}

bool IsPricedAsItIs(const ShardFeatures& shard) { return !shard.hot_row_blocks; }
bool IsPricedAsItIs(const std::vector<ShardFeatures>& shards) {
  return std::all_of(shards.begin(), shards.end(),
                     [](const ShardFeatures& shard) { return IsPricedAsItIs(shard); });
}
ShardFeatures AsPriced(const ShardFeatures& shard, std::int64_t global_batch_size) {
  return AsHottestRowBlock(shard, global_batch_size);
}
std::vector<ShardFeatures> AsPriced(const std::vector<ShardFeatures>& shards,
                                    std::int64_t global_batch_size) {
  std::vector<ShardFeatures> priced;
  for (const ShardFeatures& shard : shards) priced.push_back(AsPriced(shard, global_batch_size));
  return priced;
}

// Shards, or sets of them, as they are priced; in `made` where some are not priced as they are.
template <typename Shards>
std::span<const Shards> Priced(std::span<const Shards> given, std::int64_t global_batch_size,
                               std::vector<Shards>& made) {
  if (std::all_of(given.begin(), given.end(),
                  [](const Shards& shards) { return IsPricedAsItIs(shards); })) {
    return given;
  }
  for (const Shards& shards : given) made.push_back(AsPriced(shards, global_batch_size));
  return made;
}

}  // namespace

BoundCostModel::BoundCostModel(PricingConditions conditions, ModelProperties properties,
                               std::vector<ShardingType> sharding_types,
                               std::shared_ptr<const ComputeModel> compute,
                               std::shared_ptr<const CommModel> comm)
    : conditions_(std::move(conditions)),
      properties_(std::move(properties)),
      sharding_types_(std::move(sharding_types)),
      comm_(std::move(comm)) {
  auto input_dist = InputDist::Of(
      conditions_,
      properties_.torchrec_input_dist ? InputDistRule::kTorchRec : InputDistRule::kOurs,
      properties_.measured_input_dist, properties_.input_dist_interval);
  if (properties_.measured_steps && conditions_.num_ranks > 1) {
    const StepRates& rates = properties_.measured_steps->At(conditions_.num_ranks);
    comm_ = WithSteps(std::move(comm_), rates, conditions_);
    conditions_.compute_scales.resize(static_cast<std::size_t>(conditions_.num_ranks), 1.0F);
    for (float& scale : conditions_.compute_scales) {
      scale *= static_cast<float>(rates.compute_scale);
    }
    // The distribution of ids is scaled as the rank's compute is.
    if (input_dist) input_dist->Scale(rates.input_dist_scale / rates.compute_scale);
  }
  if (input_dist && input_dist->exposed()) {
    compute = WithInputDist(std::move(compute), *input_dist);
  }
  width_ = compute->representation_width();
  kinds_.push_back({input_dist, std::move(compute)});
}

BoundCostModel::BoundCostModel(const BoundCostModel& comm, std::span<const BoundCostModel> kinds,
                               std::vector<int> kind_of_rank)
    : conditions_(comm.conditions_),
      properties_(PropertiesOf(comm, kinds)),
      kind_of_rank_(std::move(kind_of_rank)),
      comm_(comm.comm_) {
  for (const BoundCostModel& kind : kinds) {
    assert(kind.num_kinds() == 1);
    kinds_.push_back(kind.kinds_.front());
    width_ += kind.width_;
  }
  if (kinds_.size() == 1) kind_of_rank_.clear();
  std::copy_if(comm.sharding_types_.begin(), comm.sharding_types_.end(),
               std::back_inserter(sharding_types_), [&](ShardingType type) {
                 return std::all_of(kinds.begin(), kinds.end(), [&](const BoundCostModel& kind) {
                   const auto& types = kind.sharding_types_;
                   return std::find(types.begin(), types.end(), type) != types.end();
                 });
               });
}

float BoundCostModel::exposed_input_dist_fixed_ms() const {
  float fixed_ms = 0;
  for (const Kind& kind : kinds_) {
    if (!kind.input_dist || !kind.input_dist->exposed()) continue;
    fixed_ms = std::max(fixed_ms, kind.input_dist->fixed_ms());
  }
  return fixed_ms;
}

void BoundCostModel::Represent(std::span<const ShardFeatures> given, std::span<float> phi,
                               std::span<CommLoad> loads) const {
  assert(loads.size() == given.size());
  std::vector<ShardFeatures> made;
  const std::span<const ShardFeatures> shards = Priced(given, conditions_.global_batch_size, made);
  if (kinds_.size() == 1) {
    kinds_.front().compute->Represent(conditions_, shards, phi);
  } else {
    const std::size_t stride = static_cast<std::size_t>(width_);
    std::size_t begin = 0;
    std::vector<float> of_kind;
    for (const Kind& kind : kinds_) {
      const std::size_t width = static_cast<std::size_t>(kind.compute->representation_width());
      of_kind.resize(shards.size() * width);
      kind.compute->Represent(conditions_, shards, of_kind);
      for (std::size_t i = 0; i < shards.size(); ++i) {
        std::copy_n(&of_kind[i * width], width, &phi[i * stride + begin]);
      }
      begin += width;
    }
  }
  for (std::size_t i = 0; i < shards.size(); ++i) loads[i] = comm_->Load(shards[i]);
}

void BoundCostModel::ComputeCostsByKind(std::span<const float> sums, std::span<ComputeCost> out,
                                        std::span<const int> kinds) const {
  assert(kinds.size() == out.size());
  const std::size_t stride = static_cast<std::size_t>(width_);
  thread_local std::vector<float> of_kind;  // searches ask thousands of times a millisecond
  thread_local std::vector<ComputeCost> costs;
  std::size_t begin = 0;
  for (int k = 0; k < num_kinds(); ++k) {
    const ComputeModel& compute = *kinds_[static_cast<std::size_t>(k)].compute;
    const std::size_t width = static_cast<std::size_t>(compute.representation_width());
    of_kind.clear();
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (kinds[i] != k) continue;
      const float* const row = &sums[i * stride + begin];
      of_kind.insert(of_kind.end(), row, row + width);
    }
    begin += width;
    if (of_kind.empty()) continue;
    costs.resize(of_kind.size() / width);
    compute.Costs(of_kind, costs);
    auto cost = costs.begin();
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (kinds[i] == k) out[i] = *cost++;
    }
  }
}

std::vector<ComputeInterval> BoundCostModel::ComputeIntervals(
    std::span<const std::vector<ShardFeatures>> given, std::span<const ComputeCost> costs,
    std::span<const int> kinds) const {
  std::vector<std::vector<ShardFeatures>> made;
  const std::span<const std::vector<ShardFeatures>> shards_of_ranks =
      Priced(given, conditions_.global_batch_size, made);
  if (kinds_.size() == 1) {
    return kinds_.front().compute->Intervals(conditions_, shards_of_ranks, costs);
  }
  assert(kinds.size() == costs.size());
  std::vector<ComputeInterval> intervals(costs.size());
  for (int k = 0; k < num_kinds(); ++k) {
    std::vector<std::size_t> ranks;
    std::vector<std::vector<ShardFeatures>> shards_of_kind;
    std::vector<ComputeCost> costs_of_kind;
    for (std::size_t i = 0; i < costs.size(); ++i) {
      if (kinds[i] != k) continue;
      ranks.push_back(i);
      shards_of_kind.push_back(shards_of_ranks[i]);
      costs_of_kind.push_back(costs[i]);
    }
    if (ranks.empty()) continue;
    const std::vector<ComputeInterval> of_kind =
        kinds_[static_cast<std::size_t>(k)].compute->Intervals(conditions_, shards_of_kind,
                                                               costs_of_kind);
    if (of_kind.empty()) return {};
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      intervals[ranks[i]] = of_kind[i];
      if (properties_.splits_compute) continue;
      intervals[ranks[i]].forward.reset();
      intervals[ranks[i]].backward.reset();
    }
  }
  return intervals;
}

std::vector<ShardSetCost> BoundCostModel::CostsOfSets(
    std::span<const std::vector<ShardFeatures>> sets, std::span<const int> kinds) const {
  std::vector<ShardFeatures> shards;
  std::size_t num_filled = 0;
  std::vector<int> kinds_of_filled;
  for (std::size_t s = 0; s < sets.size(); ++s) {
    if (sets[s].empty()) continue;
    shards.insert(shards.end(), sets[s].begin(), sets[s].end());
    ++num_filled;
    if (kinds_.size() > 1) kinds_of_filled.push_back(kinds[s]);
  }
  std::vector<ShardSetCost> costs(sets.size());
  if (shards.empty()) return costs;

  const std::size_t width = static_cast<std::size_t>(representation_width());
  std::vector<float> phi(shards.size() * width);
  std::vector<CommLoad> loads(shards.size());
  Represent(shards, phi, loads);
  std::vector<float> sums(num_filled * width, 0.0F);
  std::size_t shard = 0;
  float* sum = sums.data();
  for (std::size_t s = 0; s < sets.size(); ++s) {
    if (sets[s].empty()) continue;
    for (std::size_t i = 0; i < sets[s].size(); ++i, ++shard) {
      for (std::size_t w = 0; w < width; ++w) sum[w] += phi[shard * width + w];
      costs[s].load += loads[shard];
    }
    sum += width;
  }
  std::vector<ComputeCost> compute(num_filled);
  ComputeCosts(sums, compute, kinds_of_filled);
  std::size_t filled = 0;
  for (std::size_t s = 0; s < sets.size(); ++s) {
    if (!sets[s].empty()) costs[s].compute = compute[filled++];
  }
  return costs;
}

StatusOr<BoundCostModel> BindCompute(const CostModel& model, const PricingConditions& conditions) {
  NS_ASSIGN_OR_RETURN(const BoundCostModel one_rank, model.Bind(OfOneRank(conditions)));
  return BoundCostModel(conditions, one_rank.properties(), one_rank.sharding_types(),
                        one_rank.compute(), CommOfOneRank());
}

}  // namespace neuroshard
