// Planned samples in and out of their tables. Callers hold the database's lock and, to write, a
// transaction.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "common/store/profile_store.h"
#include "common/store/sql_database.h"

namespace neuroshard {

// All samples of a sweep, or those without a record.
enum class SampleFilter { kAll, kPending };

// The kind of a sweep, and the word that a row has for it.
template <typename Sample>
inline constexpr SweepKind kKindOf =
    std::is_same_v<Sample, ComputeSample> ? SweepKind::kCompute : SweepKind::kComm;
template <typename Sample>
inline constexpr std::string_view kKindText = ToText(kKindOf<Sample>);

// INVALID_ARGUMENT names the first sample that cannot be stored: an id that is empty or given
// twice, no shards or ranks, a number that is not finite.
template <typename Sample>
Status CheckSamples(const std::vector<Sample>& samples);

// In the given order; the keys of the rows come back in it.
template <typename Sample>
StatusOr<std::vector<std::int64_t>> InsertSamples(SqlDatabase& database, std::int64_t sweep_id,
                                                  const std::vector<Sample>& samples);

// Samples of one sweep in their order; `rows`, if any, gets the keys of theirs. Of ComputeSample and
// CommSample.
template <typename Sample>
StatusOr<std::vector<Sample>> SelectSamples(SqlDatabase& database, std::int64_t sweep_id,
                                            SampleFilter filter,
                                            std::vector<std::int64_t>* rows = nullptr);

}  // namespace neuroshard
