// The callers of a server: who calls, under which ids a call is found again, and what one caller
// may ask of the server in a while.
#pragma once

#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/observe/logger.h"
#include "common/observe/trace_context.h"
#include "common/text/config_reader.h"

namespace neuroshard {

// Who calls.
struct CallIdentity {
  // The id of the caller's metadata (x-request-id), where that is a header's request id; else made
  // here.
  std::string request_id;
  // A step of the caller's trace (traceparent), or of a new one.
  TraceContext trace;
  // The first subject alternative name of its certificate, else the certificate's common name;
  // without a certificate its address, without port. What quotas go by.
  std::string caller;
  // Its address with port, as gRPC writes it: "ipv4:127.0.0.1:4711". Empty where it is not known.
  std::string peer;

  // `logger` with request_id, trace_id, caller and peer in every line.
  Logger Log(const Logger& logger) const;
};

// The identity of a call, before its handler runs or in it.
CallIdentity IdentifyCall(const grpc::ServerContextBase& context);

// The identity of a call of which only these are known; `auth` may be null.
CallIdentity IdentifyCall(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata,
                          const grpc::AuthContext* auth, const std::string& peer);

// The limits of one caller. 0: no limit.
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
  CallerQuotas(const CallerQuotaOptions& options, const Clock& clock)
      : options_(options), clock_(clock), window_(std::chrono::seconds(options.window_s)) {}

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
  Buckets shared_ NS_GUARDED_BY(mutex_);
  std::optional<TimePoint> last_pass_ NS_GUARDED_BY(mutex_);
};

}  // namespace neuroshard
