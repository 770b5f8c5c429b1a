#include "common/rpc/call_identity.h"

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/printable_text.h"

namespace neuroshard {
namespace {

using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

// In logs, and as keys of quotas.
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

}  // namespace neuroshard
