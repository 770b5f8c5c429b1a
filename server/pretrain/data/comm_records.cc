#include "server/pretrain/data/comm_records.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "common/base/number_text.h"
#include "common/domain/measurement.h"
#include "server/cost/input_dist.h"

namespace neuroshard {
namespace {

// What a rank's casts took; nothing where its record does not say, or says what cannot be.
std::optional<double> CastsMs(const CommRecord& record, std::size_t rank) {
  if (rank >= record.environments.size()) return std::nullopt;
  const auto ms = NumberOf<double>(record.environments[rank].property(kCastsProperty));
  if (!ms || !std::isfinite(*ms) || *ms < 0 || *ms > record.cost_ms[rank]) return std::nullopt;
  return ms;
}

// By rank; nothing where one does not say.
std::optional<std::vector<double>> CastsMs(const CommRecord& record) {
  std::vector<double> of_ranks;
  for (std::size_t rank = 0; rank < record.cost_ms.size(); ++rank) {
    const std::optional<double> ms = CastsMs(record, rank);
    if (!ms) return std::nullopt;
    of_ranks.push_back(*ms);
  }
  return of_ranks;
}

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

double CastValues(const CommSample& sample, std::size_t rank) {
  const auto ranks = static_cast<double>(sample.dim_sums.size());
  const auto columns = static_cast<double>(
      std::accumulate(sample.dim_sums.begin(), sample.dim_sums.end(), std::int64_t{0}));
  return static_cast<double>(sample.batch_size) / ranks *
         (ranks * static_cast<double>(sample.dim_sums[rank]) + columns);
}

std::vector<CommRecord> CastsAlone(std::vector<CommRecord> records) {
  std::erase_if(records, [](CommRecord& record) {
    if (!record.sample.casts()) return true;
    std::optional<std::vector<double>> casts_ms = CastsMs(record);
    if (!casts_ms || std::count(casts_ms->begin(), casts_ms->end(), 0.0) > 0) return true;
    record.cost_ms = *std::move(casts_ms);
    return false;
  });
  return records;
}

std::vector<CommRecord> WithoutCasts(std::vector<CommRecord> records) {
  std::erase_if(records, [](CommRecord& record) {
    if (!record.sample.casts()) return false;
    const std::optional<std::vector<double>> casts_ms = CastsMs(record);
    if (!casts_ms) return true;
    for (std::size_t rank = 0; rank < casts_ms->size(); ++rank) {
      record.cost_ms[rank] -= (*casts_ms)[rank];
    }
    record.sample.wire_dtype = DataType::kFp32;
    return false;
  });
  return records;
}

InputDistObservation ObservationOf(const CommRecord& record) {
  InputDistObservation observation;
  const auto all = [](const InputDistBytes& b) { return b.whole + b.cut + b.lengths; };
  for (std::size_t rank = 0; rank < record.sample.dim_sums.size(); ++rank) {
    const InputDistBytes of_rank = BytesOfRank(record.sample, rank);
    if (all(of_rank) > all(observation.bytes)) observation.bytes = of_rank;
  }
  observation.ms = *std::ranges::max_element(record.cost_ms);
  return observation;
}

}  // namespace neuroshard
