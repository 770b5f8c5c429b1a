#include "server/pretrain/data/cast_observation.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>

#include "common/domain/measurement.h"

namespace neuroshard {
namespace {

// Of a rank of a record with casts; nothing where it does not say, or says what cannot be.
std::optional<double> CastsMs(const CommRecord& record, std::size_t rank) {
  if (rank >= record.environments.size()) return std::nullopt;
  const auto& properties = record.environments[rank].properties;
  const auto found = properties.find(std::string(kCastsProperty));
  if (found == properties.end()) return std::nullopt;
  const std::string& text = found->second;
  double ms = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || !std::isfinite(ms) || ms < 0 || ms > record.cost_ms[rank]) return std::nullopt;
  return ms;
}

bool Casts(const CommRecord& record) { return record.sample.wire_dtype != DataType::kFp32; }

}  // namespace

double CastValues(const CommSample& sample, std::size_t rank) {
  const auto ranks = static_cast<double>(sample.dim_sums.size());
  const auto columns = static_cast<double>(
      std::accumulate(sample.dim_sums.begin(), sample.dim_sums.end(), std::int64_t{0}));
  return static_cast<double>(sample.batch_size) / ranks *
         (ranks * static_cast<double>(sample.dim_sums[rank]) + columns);
}

std::vector<CastObservation> CastsOf(const std::vector<CommRecord>& records) {
  std::vector<CastObservation> observations;
  for (const CommRecord& record : records) {
    if (!Casts(record)) continue;
    for (std::size_t rank = 0; rank < record.cost_ms.size(); ++rank) {
      const double values = CastValues(record.sample, rank);
      const std::optional<double> ms = CastsMs(record, rank);
      if (!ms || *ms == 0 || values == 0) continue;
      observations.push_back({record.sample.wire_dtype, values, *ms});
    }
  }
  return observations;
}

std::vector<CommRecord> WithoutCasts(std::vector<CommRecord> records) {
  std::erase_if(records, [](CommRecord& record) {
    if (!Casts(record)) return false;
    for (std::size_t rank = 0; rank < record.cost_ms.size(); ++rank) {
      const std::optional<double> ms = CastsMs(record, rank);
      if (!ms) return true;
      record.cost_ms[rank] -= *ms;
    }
    record.sample.wire_dtype = DataType::kFp32;
    return false;
  });
  return records;
}

}  // namespace neuroshard
