#include "common/rpc/callers.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "common/base/failure_reason.h"
#include "common/base/printable_text.h"
#include "common/rpc/status_mapping.h"

namespace neuroshard {
namespace {

using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

// A caller's name is cut to this in logs and as a key of quotas.
constexpr std::size_t kMaxCallerBytes = 200;

std::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

// The value of a key that is there once; empty otherwise.
std::string_view Only(const Metadata& metadata, const char* key) {
  return metadata.count(key) == 1 ? View(metadata.find(key)->second) : std::string_view();
}

// "ipv4:10.0.0.1:5" -> "10.0.0.1", "ipv6:%5B::1%5D:5" -> "::1"; other kinds as they are.
std::string AddressOf(const std::string& peer) {
  const std::size_t kind = peer.find(':');
  const std::size_t port = peer.rfind(':');
  if (kind == std::string::npos || kind == port || !peer.starts_with("ipv")) return peer;
  std::string_view host = std::string_view(peer).substr(kind + 1, port - kind - 1);
  for (const std::string_view open : {"%5B", "["}) {
    if (host.starts_with(open)) host.remove_prefix(open.size());
  }
  for (const std::string_view close : {"%5D", "]"}) {
    if (host.ends_with(close)) host.remove_suffix(close.size());
  }
  return std::string(host);
}

std::string CallerOf(const grpc::AuthContext* auth, const std::string& peer) {
  if (auth != nullptr && auth->IsPeerAuthenticated()) {
    for (const char* property : {"x509_subject_alternative_name", "x509_common_name"}) {
      const std::vector<grpc::string_ref> names = auth->FindPropertyValues(property);
      if (!names.empty() && !names.front().empty()) {
        return Printable(View(names.front()), kMaxCallerBytes);
      }
    }
  }
  return AddressOf(peer);
}

using std::chrono::milliseconds;

constexpr std::chrono::seconds kPassInterval{1};

// Who has an IPv6 address has at least the 2^64 of its network.
std::string KeyOf(const std::string& caller) {
  in6_addr address{};
  if (inet_pton(AF_INET6, caller.c_str(), &address) != 1 || IN6_IS_ADDR_V4MAPPED(&address)) {
    return caller;
  }
  std::memset(address.s6_addr + 8, 0, 8);
  char text[INET6_ADDRSTRLEN] = {};
  return std::string(inet_ntop(AF_INET6, &address, text, sizeof text)) + "/64";
}

Status OverQuota(const std::string& caller, std::int64_t amount, std::string_view what,
                 const CallerQuotaOptions& options, TimePoint::duration wait) {
  const auto rounded = std::max(milliseconds(1), std::chrono::ceil<milliseconds>(wait));
  return WithReason(
      WithRetryAfter(ResourceExhausted("{} has used its quota of {} {} in {} s (quotas of the "
                                       "server); there is more in {} ms",
                                       caller, amount, what, options.window_s, rounded.count()),
                     rounded),
      FailureReason::kOverQuota);
}

}  // namespace

Logger CallIdentity::Log(const Logger& logger) const {
  return logger.With({{"request_id", request_id},
                      {"trace_id", trace.trace_id},
                      {"caller", caller},
                      {"peer", peer}});
}

CallIdentity IdentifyCall(const Metadata& metadata, const grpc::AuthContext* auth,
                          const std::string& peer) {
  const std::string_view request_id = Only(metadata, kRequestIdKey);
  const auto trace = ParseTraceparent(Only(metadata, kTraceparentKey));
  return {.request_id = IsRequestId(request_id) ? std::string(request_id) : MakeRequestId(),
          .trace = trace.has_value() ? NextStep(*trace) : NewTrace(),
          .caller = CallerOf(auth, peer),
          .peer = peer};
}

CallIdentity IdentifyCall(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  return IdentifyCall(context.client_metadata(), auth.get(), context.peer());
}

CallerQuotaOptions ReadCallerQuotas(ConfigReader& section) {
  CallerQuotaOptions options;
  section.Read("requests", &options.requests, {0, 1'000'000'000});
  section.Read("search_seconds", &options.search_seconds, {0, 1'000'000'000});
  section.Read("window_s", &options.window_s, {1, 86'400});
  section.Read("max_callers", &options.max_callers, {1, 10'000'000});
  return options;
}

CallerQuotas::Buckets& CallerQuotas::Find(const std::string& caller, TimePoint now) {
  const std::string key = KeyOf(caller);
  const auto found = callers_.find(key);
  if (found != callers_.end()) return found->second;
  const auto most = static_cast<std::size_t>(options_.max_callers);
  if (callers_.size() >= most && (!last_pass_.has_value() || now - *last_pass_ >= kPassInterval)) {
    last_pass_ = now;
    // One whose buckets are full is like one that never called.
    std::erase_if(callers_, [now](const auto& entry) {
      return entry.second.requests_full <= now && entry.second.search_full <= now;
    });
  }
  return callers_.size() >= most ? shared_ : callers_[key];
}

Status CallerQuotas::Admit(const std::string& caller) {
  if (options_.requests == 0 && options_.search_seconds == 0) return absl::OkStatus();
  const MutexLock lock(mutex_);
  const TimePoint now = clock_.Now();
  Buckets& buckets = Find(caller, now);
  // Something is left while less than a window is missing.
  const TimePoint::duration search_debt = buckets.search_full - now;
  if (options_.search_seconds > 0 && search_debt >= window_) {
    return OverQuota(caller, options_.search_seconds, "seconds of search", options_,
                     search_debt - window_);
  }
  if (options_.requests == 0) return absl::OkStatus();
  // Rounded up: a request less a window, never one more.
  const TimePoint::duration each =
      (window_ + TimePoint::duration(options_.requests - 1)) / options_.requests;
  const TimePoint full = std::max(buckets.requests_full, now) + each;
  // The last request of a whole bucket may be short of its share by that rounding.
  if (full - now > each * options_.requests) {
    return OverQuota(caller, options_.requests, "requests", options_,
                     full - now - each * options_.requests);
  }
  buckets.requests_full = full;
  return absl::OkStatus();
}

void CallerQuotas::ChargeSearch(const std::string& caller, double seconds) {
  if (options_.search_seconds == 0) return;
  const MutexLock lock(mutex_);
  const TimePoint now = clock_.Now();
  Buckets& buckets = Find(caller, now);
  const double windows = seconds / static_cast<double>(options_.search_seconds);
  buckets.search_full =
      std::max(buckets.search_full, now) + std::chrono::duration_cast<TimePoint::duration>(
                                               std::chrono::duration<double>(window_) * windows);
}

std::size_t CallerQuotas::callers() const {
  const MutexLock lock(mutex_);
  return callers_.size();
}

}  // namespace neuroshard
