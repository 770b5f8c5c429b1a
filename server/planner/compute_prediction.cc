#include "server/planner/compute_prediction.h"

#include <algorithm>
#include <cstddef>

#include "server/cost/compute_features.h"
#include "server/cost/shard_features.h"

namespace neuroshard {
namespace {

// Shards that are represented together.
constexpr std::size_t kBlockShards = 4096;

bool IsPlain(const ComputeSample& set) {
  return std::ranges::all_of(set.shards, [](const MeasuredShard& shard) {
    return !IsLowPrecision(shard.weight_dtype) && shard.pooling_mode != PoolingMode::kNone;
  });
}

bool HasHostMemory(const ComputeSample& set) {
  return std::ranges::any_of(
      set.shards, [](const MeasuredShard& shard) { return IsInHostMemory(shard.compute_kernel); });
}

// Sets from the front on that one call of the model takes: under the same conditions, not many.
std::span<const ComputeSample> NextBlock(std::span<const ComputeSample> sets) {
  std::size_t shards = sets.front().shards.size();
  std::size_t count = 1;
  while (count < sets.size() && sets[count].batch_size == sets.front().batch_size &&
         sets[count].optimizer == sets.front().optimizer &&
         shards + sets[count].shards.size() <= kBlockShards) {
    shards += sets[count++].shards.size();
  }
  return sets.first(count);
}

// Each set of the block, added to `predictions`.
void PredictBlock(const BoundCostModel& model, std::span<const ComputeSample> block,
                  std::vector<ComputePrediction>& predictions) {
  ShardSets sets;
  for (const ComputeSample& set : block) {
    std::vector<int>& numbers = sets.sets.emplace_back();
    for (const MeasuredShard& shard : set.shards) {
      numbers.push_back(static_cast<int>(sets.shards.size()));
      sets.shards.push_back(FeaturesOf(shard));
    }
  }
  const std::vector<ComputeCost> costs = Mapped(model.CostsOfSets(sets), &ShardSetCost::compute);
  const std::vector<ComputeInterval> intervals = model.ComputeIntervals(sets, costs);
  for (std::size_t set = 0; set < block.size(); ++set) {
    ComputePrediction& prediction = predictions.emplace_back();
    prediction.cost = costs[set];
    if (!intervals.empty()) prediction.interval = intervals[set];
  }
}

}  // namespace

StatusOr<std::vector<ComputePrediction>> PredictCompute(const CostModel& model,
                                                        std::span<const ComputeSample> sets,
                                                        const StopSignal& stop) {
  std::vector<ComputePrediction> predictions;
  predictions.reserve(sets.size());
  while (!sets.empty()) {
    if (stop.ShouldStop()) {
      return absl::DeadlineExceededError("no time left to predict all sets");
    }
    const std::span<const ComputeSample> block = NextBlock(sets);
    PricingConditions conditions = ConditionsOf(block.front());
    conditions.has_plain_tables = std::ranges::all_of(block, IsPlain);
    conditions.has_rows_off_device = std::ranges::any_of(block, HasHostMemory);
    NS_ASSIGN_OR_RETURN(const BoundCostModel bound, model.Bind(conditions));
    PredictBlock(bound, block, predictions);
    sets = sets.subspan(block.size());
  }
  return predictions;
}

}  // namespace neuroshard
