#include "client/validate/plan_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
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
    sample.element_bytes = ElementBits(*wire_dtype) / 8;
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

std::optional<CommSample> InputDistribution(const std::vector<RankShards>& ranks,
                                            RankIds RankShards::*of, std::int64_t batch_size) {
  InputDistSample input;
  input.weighted = of == &RankShards::weighted_ids;
  bool any = false;
  for (const RankShards& rank : ranks) {
    const RankIds& ids = rank.*of;
    any = any || ids.whole_features > 0 || ids.cut_features > 0;
    input.whole_features.push_back(ids.whole_features);
    input.whole_ids.push_back(ids.whole_ids);
    input.cut_features = std::max(input.cut_features, ids.cut_features);
    input.cut_ids += ids.cut_ids;
  }
  if (!any) return std::nullopt;
  CommSample sample;
  sample.sample_id = fmt::format("{}{}", kInputDistWord, input.weighted ? "-weighted" : "");
  sample.batch_size = batch_size;
  sample.dim_sums.assign(ranks.size(), 0);
  sample.input_dist = std::move(input);
  return sample;
}

// A sample must be within what workers distribute at most.
Status CheckLimits(const InputDistSample& input) {
  const std::int64_t features =
      std::max(input.cut_features, *std::ranges::max_element(input.whole_features));
  const double ids = std::max(input.cut_ids, *std::ranges::max_element(input.whole_ids));
  if (features <= kMaxDistributedFeatures && ids <= kMaxDistributedIds) return absl::OkStatus();
  return FailedPrecondition(
      "a rank, or all cut tables, have {} features and {:.4g} ids a sample, workers distribute {} "
      "and {:.4g}",
      features, ids, kMaxDistributedFeatures, kMaxDistributedIds);
}

}  // namespace

StatusOr<std::vector<CommSample>> InputDistributionsOf(const std::vector<RankShards>& ranks,
                                                       std::int64_t batch_size) {
  std::vector<CommSample> samples;
  for (const auto of : {&RankShards::ids, &RankShards::weighted_ids}) {
    auto sample = InputDistribution(ranks, of, batch_size);
    if (!sample) continue;
    NS_RETURN_IF_ERROR(CheckLimits(*sample->input_dist));
    samples.push_back(*std::move(sample));
  }
  return samples;
}

std::vector<CommSample> CollectivesOf(const std::vector<RankShards>& ranks, CommDirection direction,
                                      std::int64_t batch_size,
                                      const QuantizedComms& quantized_comms) {
  const bool forward = direction == CommDirection::kForward;
  std::vector<CommSample> collectives;
  if (std::ranges::any_of(ranks, [](const RankShards& r) { return r.dim_sum > 0; })) {
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

std::vector<std::string> InputDistNotesOn(const std::vector<RankShards>& ranks) {
  constexpr double kEven = 0.01;  // of a rank's ids: the last block may have fewer rows
  std::vector<std::string> notes;
  int distributions = 0;
  for (const auto of : {&RankShards::ids, &RankShards::weighted_ids}) {
    distributions += InputDistribution(ranks, of, 0) ? 1 : 0;
    const auto [least, most] = std::minmax_element(ranks.begin(), ranks.end(),
                                                   [of](const RankShards& a, const RankShards& b) {
                                                     return (a.*of).cut_ids < (b.*of).cut_ids;
                                                   });
    const double least_ids = ((*least).*of).cut_ids;
    const double most_ids = ((*most).*of).cut_ids;
    if (least_ids >= (1 - kEven) * most_ids) continue;
    notes.push_back(fmt::format(
        "ranks get {:.3g} to {:.3g} ids a sample of tables that are cut in rows: their ids were "
        "distributed evenly",
        least_ids, most_ids));
  }
  if (distributions > 1) {
    notes.push_back(
        "ids with weights were distributed after those without, as modules of their own do it: a "
        "prediction has the fixed time of one distribution");
  }
  return notes;
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
