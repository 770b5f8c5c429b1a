// CallerQuotas: what one caller may ask of a server in a while.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/text/config_reader.h"

namespace neuroshard {

// 0: no limit.
struct CallerQuotaOptions {
  // Calls, and seconds of search (time x threads), that a caller who has been away for `window_s`
  // may use at once; what was used comes back evenly over `window_s`.
  std::int64_t requests = 0;
  std::int64_t search_seconds = 0;
  std::int64_t window_s = 60;
  // Callers that are remembered. Those beyond share one quota, so that nobody gains by having many
  // names and memory stays bounded (about 200 bytes a caller).
  std::int64_t max_callers = 10'000;
};

// Keys of a section `quotas`.
CallerQuotaOptions ReadCallerQuotas(ConfigReader& section);

// Token buckets: in any time t a caller is admitted at most requests * (1 + t / window) times, and
// begins a search only while it has used less than search_seconds * (1 + t / window). A search is
// charged when it ends, so what runs at that moment is used on credit, which has to come back
// first. Thread-safe. O(1), but one pass over all callers at most once a second while there are
// max_callers.
class CallerQuotas {
 public:
  // `clock` must outlive this.
  CallerQuotas(const CallerQuotaOptions& options, const Clock& clock);

  // Takes one request. RESOURCE_EXHAUSTED (OVER_QUOTA) says which limit and when there is more, and
  // takes nothing.
  Status Admit(const std::string& caller);
  void ChargeSearch(const std::string& caller, double seconds);

  std::size_t callers() const;

 private:
  // When the caller's buckets are full again; now or earlier: they are full.
  struct Buckets {
    TimePoint requests_full;
    TimePoint search_full;
  };

  Buckets& Find(const std::string& caller, TimePoint now) NS_REQUIRES(mutex_);

  const CallerQuotaOptions options_;
  const Clock& clock_;
  const TimePoint::duration window_;
  mutable Mutex mutex_;
  std::unordered_map<std::string, Buckets> callers_ NS_GUARDED_BY(mutex_);
  Buckets others_ NS_GUARDED_BY(mutex_);
  std::optional<TimePoint> last_pass_ NS_GUARDED_BY(mutex_);
};

}  // namespace neuroshard
