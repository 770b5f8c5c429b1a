#include "server/pretrain/data/input_dist_observation.h"

#include <algorithm>
#include <cstddef>

#include "server/cost/input_dist.h"

namespace neuroshard {
namespace {

// As prices see what a rank receives: its whole tables as one, and its blocks of the cut ones.
InputDistBytes BytesOfRank(const CommSample& sample, std::size_t rank) {
  const InputDistSample& input = *sample.input_dist;
  PricingConditions conditions;
  conditions.num_ranks = static_cast<int>(sample.dim_sums.size());
  conditions.global_batch_size = sample.batch_size;
  ShardFeatures whole;
  whole.layout.type = ShardingType::kTableWise;
  whole.rows = whole.table_rows = conditions.num_ranks;
  whole.weighted = input.weighted;
  ShardFeatures cut = whole;
  whole.pooling_factor = input.whole_ids[rank];
  whole.num_features = static_cast<int>(input.whole_features[rank]);
  cut.layout.type = ShardingType::kRowWise;
  cut.rows = 1;
  cut.pooling_factor = input.cut_ids;
  cut.num_features = static_cast<int>(input.cut_features);
  InputDistBytes bytes = InputDistBytesOf(whole, conditions);
  bytes += InputDistBytesOf(cut, conditions);
  return bytes;
}

}  // namespace

InputDistObservation ObservationOf(const CommRecord& record) {
  InputDistObservation observation;
  const auto all = [](const InputDistBytes& b) { return b.whole + b.cut + b.lengths; };
  for (std::size_t rank = 0; rank < record.sample.dim_sums.size(); ++rank) {
    const InputDistBytes of_rank = BytesOfRank(record.sample, rank);
    if (all(of_rank) > all(observation.bytes)) observation.bytes = of_rank;
  }
  observation.ms = *std::max_element(record.cost_ms.begin(), record.cost_ms.end());
  return observation;
}

}  // namespace neuroshard
