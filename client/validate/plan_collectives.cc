#include "client/validate/plan_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace neuroshard {
namespace {

std::int64_t DividedUp(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

struct Extremes {
  std::int64_t least = 0;
  std::int64_t most = 0;
};

Extremes CutRowColumns(const std::vector<RankShards>& ranks) {
  const auto [least, most] =
      std::minmax_element(ranks.begin(), ranks.end(), [](const RankShards& a, const RankShards& b) {
        return a.cut_row_columns < b.cut_row_columns;
      });
  return {least->cut_row_columns, most->cut_row_columns};
}

std::int64_t MostReplicaValues(const std::vector<RankShards>& ranks) {
  std::int64_t most = 0;
  for (const RankShards& rank : ranks) most = std::max(most, rank.replica_values());
  return most;
}

CommSample AllToAll(const std::vector<RankShards>& ranks, CommDirection direction,
                    std::int64_t batch_size, std::optional<DataType> wire_dtype) {
  CommSample sample;
  if (wire_dtype && IsWireCast(*wire_dtype)) {
    sample.wire_dtype = *wire_dtype;
    sample.element_bytes = ElementBytes(*wire_dtype);
  }
  sample.sample_id = std::string(ToText(direction));
  sample.direction = direction;
  sample.batch_size = batch_size;
  for (const RankShards& rank : ranks) sample.dim_sums.push_back(rank.dim_sum);
  return sample;
}

CommSample Uniform(Collective collective, CommDirection direction, std::size_t num_ranks,
                   std::int64_t columns, std::int64_t batch_size) {
  CommSample sample;
  sample.sample_id = fmt::format("{}-{}", ToText(direction), ToText(collective));
  sample.direction = direction;
  sample.collective = collective;
  sample.batch_size = batch_size;
  sample.dim_sums.assign(num_ranks, columns);
  return sample;
}

// As near to `batch_size` as the values allow, since a model of one batch size counts columns of
// that; but never more values than there are.
CommSample AllReduce(std::size_t num_ranks, std::int64_t values, std::int64_t batch_size) {
  const auto n = static_cast<std::int64_t>(num_ranks);
  const std::int64_t columns = DividedUp(values, batch_size);
  const std::int64_t samples = DividedUp(DividedUp(values, columns), n) * n;
  return Uniform(Collective::kAllReduce, CommDirection::kBackward, num_ranks, columns, samples);
}

}  // namespace

std::vector<CommSample> CollectivesOf(const std::vector<RankShards>& ranks, CommDirection direction,
                                      std::int64_t batch_size,
                                      const QuantizedComms& quantized_comms) {
  const bool forward = direction == CommDirection::kForward;
  std::vector<CommSample> collectives;
  if (std::any_of(ranks.begin(), ranks.end(), [](const RankShards& r) { return r.dim_sum > 0; })) {
    collectives.push_back(
        AllToAll(ranks, direction, batch_size,
                 forward ? quantized_comms.forward_dtype : quantized_comms.backward_dtype));
  }
  if (const std::int64_t columns = CutRowColumns(ranks).most; columns > 0) {
    collectives.push_back(Uniform(forward ? Collective::kReduceScatter : Collective::kAllGather,
                                  direction, ranks.size(), columns, batch_size));
  }
  if (const std::int64_t values = MostReplicaValues(ranks); values > 0 && !forward) {
    collectives.push_back(AllReduce(ranks.size(), values, batch_size));
  }
  return collectives;
}

std::vector<std::string> NotesOn(const std::vector<RankShards>& ranks) {
  std::vector<std::string> notes;
  if (const Extremes columns = CutRowColumns(ranks); columns.least < columns.most) {
    notes.push_back(fmt::format(
        "ranks hold {} to {} columns of tables that are cut in rows: reduce_scatter and all_gather "
        "are of {} on every rank",
        columns.least, columns.most, columns.most));
  }
  if (MostReplicaValues(ranks) > 0) {
    notes.push_back(
        "replicas were looked up for each rank's part of the batch, with an update of the rows "
        "looked up; a trainer's update after the all_reduce is of all rows");
  }
  return notes;
}

}  // namespace neuroshard
