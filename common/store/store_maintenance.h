// What an operator does with a whole profile store, of either kind: see what it contains, copy it,
// back it up, look for damage, remove old records.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/store/profile_store.h"

namespace neuroshard {

// One environment, and the records that were measured in it.
struct EnvironmentUse {
  MeasurementEnvironment environment;  // without its time and kPropertiesOfOneRecord
  std::int64_t compute_records = 0;
  std::int64_t comm_records = 0;  // one a rank
  std::int64_t first_unix_ms = 0;
  std::int64_t last_unix_ms = 0;
};

// What a store contains.
struct StoreContent {
  std::vector<SweepStatistics> sweeps;
  std::vector<EnvironmentUse> environments;
  std::int64_t bytes = 0;
};
StatusOr<StoreContent> DescribeStore(const ProfileStore& store);

// Records of samples: a collective counts once.
struct CopyReport {
  std::int64_t sweeps = 0;
  std::int64_t copied = 0;
  std::int64_t already_there = 0;
};

// Brings all sweeps, samples and records of `from`, as they are at one moment, into `to`, which
// keeps what it has; of a sample that both measured it keeps its own record. In transactions of
// some hundred records: what is interrupted goes on where it was when called again. `on_record`
// hears of each record. FAILED_PRECONDITION: a sweep of `to` has the same config_hash and other
// samples.
StatusOr<CopyReport> CopyStore(const ProfileStore& from, ProfileStore& to,
                               const std::function<void()>& on_record);

// A file that is a whole store as `from` is at one moment, also while others write to it: synced,
// and under its name only when complete. ALREADY_EXISTS when there is such a file.
Status BackUpStore(const ProfileStore& from, const std::string& path,
                   const std::function<void()>& on_record);

// What is wrong with the store, at most 20 lines, best known first; empty when nothing:
// the database's own checks, then every row read, decoded and compared (a cost is the median of its
// series, a collective has all its ranks). Reads everything.
StatusOr<std::vector<std::string>> FindStoreFaults(const ProfileStore& store);

// Records that match everything that is given; nothing given matches nothing. Imported records have
// neither time nor environment and never match.
struct PruneRule {
  std::optional<std::int64_t> before_unix_ms;  // measured earlier
  // A word of the environment's values (host, device...), or a property: KEY=VALUE.
  std::string environment;
};
struct PruneReport {
  std::int64_t records = 0;  // of samples
  std::int64_t sweeps = 0;   // that lose their last record, and go with their samples
};
// Removes matching records, in one transaction; `dry_run` counts them. The samples of a sweep that
// keeps records are pending again. Of a collective one rank that matches is enough.
StatusOr<PruneReport> PruneStore(ProfileStore& store, const PruneRule& rule, bool dry_run);

}  // namespace neuroshard
