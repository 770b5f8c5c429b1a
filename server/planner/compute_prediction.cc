#include "server/planner/compute_prediction.h"

#include <cstddef>
#include <utility>

#include "server/features/shard_features.h"

namespace neuroshard {
namespace {

// Shards that are represented together.
constexpr std::size_t kBlockShards = 4096;

bool SameConditions(const ComputeSample& a, const ComputeSample& b) {
  return a.batch_size == b.batch_size && a.optimizer == b.optimizer;
}

// Sets from the front on that one call of the model takes: under the same conditions, not many.
std::span<const ComputeSample> NextBlock(std::span<const ComputeSample> sets) {
  std::size_t shards = sets.front().shards.size();
  std::size_t count = 1;
  while (count < sets.size() && SameConditions(sets.front(), sets[count]) &&
         shards + sets[count].shards.size() <= kBlockShards) {
    shards += sets[count++].shards.size();
  }
  return sets.first(count);
}

// Each set of the block, added to `predictions`.
void PredictBlock(const CostModel& model, const PricingConditions& conditions,
                  std::span<const ComputeSample> block,
                  std::vector<ComputePrediction>& predictions) {
  std::vector<std::vector<ShardFeatures>> shards_of_sets;
  std::vector<ShardFeatures> shards;
  for (const ComputeSample& set : block) {
    std::vector<ShardFeatures>& of_set = shards_of_sets.emplace_back();
    for (const MeasuredShard& shard : set.shards) of_set.push_back(FeaturesOf(shard));
    shards.insert(shards.end(), of_set.begin(), of_set.end());
  }
  const std::size_t width = static_cast<std::size_t>(model.representation_width());
  std::vector<float> phi(shards.size() * width);
  std::vector<CommLoad> loads(shards.size());
  model.Represent(conditions, shards, phi, loads);
  std::vector<float> sums(block.size() * width, 0.0F);
  std::size_t row = 0;
  for (std::size_t set = 0; set < block.size(); ++set) {
    for (std::size_t s = 0; s < shards_of_sets[set].size(); ++s, ++row) {
      for (std::size_t w = 0; w < width; ++w) sums[set * width + w] += phi[row * width + w];
    }
  }
  std::vector<ComputeCost> costs(block.size());
  model.ComputeCosts(sums, costs);
  const std::vector<ComputeInterval> intervals =
      model.ComputeIntervals(conditions, shards_of_sets, costs);
  for (std::size_t set = 0; set < block.size(); ++set) {
    ComputePrediction& prediction = predictions.emplace_back();
    prediction.cost = costs[set];
    if (!intervals.empty()) prediction.interval = intervals[set];
  }
}

}  // namespace

StatusOr<std::vector<ComputePrediction>> PredictCompute(std::shared_ptr<const CostModel> model,
                                                        std::span<const ComputeSample> sets,
                                                        const StopSignal& stop) {
  std::vector<ComputePrediction> predictions;
  predictions.reserve(sets.size());
  while (!sets.empty()) {
    if (stop.ShouldStop()) {
      return absl::DeadlineExceededError("no time left to predict all sets");
    }
    const std::span<const ComputeSample> block = NextBlock(sets);
    PricingConditions conditions;  // one rank on a host of its own
    conditions.global_batch_size = block.front().batch_size;
    conditions.optimizer = block.front().optimizer;
    NS_RETURN_IF_ERROR(model->CheckConditions(conditions));
    PredictBlock(*BindModel(model, conditions), conditions, block, predictions);
    sets = sets.subspan(block.size());
  }
  return predictions;
}

}  // namespace neuroshard
