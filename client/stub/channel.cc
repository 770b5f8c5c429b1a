#include "client/stub/channel.h"

#include <cstdlib>
#include <string_view>

#include "common/base/text_lines.h"
#include "common/observe/trace_context.h"
#include "common/rpc/status_mapping.h"

namespace neuroshard {
namespace {

// A server that was restarted on its address is found again within about this time.
constexpr int kLongestReconnectMs = 1'000;
// What one attempt to connect may take, TCP and HTTP/2 handshake together: a busy host needs more
// than the backoff. (gRPC has one argument for it, whose name speaks of the backoff.)
constexpr int kConnectMs = 10'000;
// Connections are let go when nothing was asked for so long, before servers do with those that have
// no call at all; the health of a replica is one.
constexpr int kIdleMs = 240'000;

// What gRPC says when there is no connection, in words for whoever has to mend it.
std::string PlainConnectionFault(const std::string& message) {
  const auto has = [&message](std::string_view part) {
    return message.find(part) != std::string::npos;
  };
  if (has("http1.x server")) {
    return "what listens there speaks HTTP/1.1 and not gRPC: a port of metrics, perhaps";
  }
  if (has("Failed parsing HTTP/2")) return "what listens there does not speak gRPC";
  if (has("Connection refused")) return "nothing listens there (Connection refused)";
  if (has("Socket closed") || has("Connection reset by peer") || has("Broken pipe")) {
    return "the connection was closed: the server ended, or one of the two has TLS and the other "
           "has not (--tls-ca, --tls-cert, --tls-key), or it does not trust whoever signed the "
           "caller's certificate";
  }
  if (has("not in peer certificate") || has("Hostname Verification")) {
    return "the server's certificate does not name this address (--tls-server-name says what it "
           "names)";
  }
  if (has("backend unhealthy")) {
    return "no replica that answers is ready: each drains, or lacks its default model (ask one "
           "alone: neuroshard models list)";
  }
  if (has("DNS resolution failed")) return "there is no host of that name (DNS resolution failed)";
  if (message == "Deadline Exceeded") return "no answer within the time that the caller allowed";
  return message;
}

// gRPC itself answers calls that a server does not know, without a word.
std::string ReasonOf(const Status& status, const std::string& role) {
  // A worker says it of the connection between two ranks.
  if (status.code() == absl::StatusCode::kAborted) return Message(status);
  if (!status.message().empty()) return PlainConnectionFault(Message(status));
  if (status.code() == absl::StatusCode::kUnimplemented) {
    return fmt::format("what listens there does not know this call: no {}, or an older one", role);
  }
  return absl::StatusCodeToString(status.code());
}

// The fault of the first server of a list whose certificate is not accepted.
std::string FaultOfCertificate(const std::string& addresses, const ClientTls& tls) {
  for (const std::string_view one : SplitText(addresses, ',')) {
    const std::string fault = CertificateOf(std::string(one), tls).fault;
    if (!fault.empty()) return fmt::format("the certificate of {} {}", one, fault);
  }
  return "the server's certificate is not accepted";
}

// Whether the server's log says more: of failures that are not about the request.
bool LogTellsMore(absl::StatusCode code) {
  return code == absl::StatusCode::kInternal || code == absl::StatusCode::kUnknown ||
         code == absl::StatusCode::kAborted || code == absl::StatusCode::kUnavailable ||
         code == absl::StatusCode::kDeadlineExceeded ||
         code == absl::StatusCode::kResourceExhausted;
}

// What the server said it is; empty where it said nothing.
std::string RequestIdOf(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(kRequestIdKey);
  if (found == trailers.end()) return "";
  std::string id(found->second.data(), found->second.size());
  return IsRequestId(id) ? id : "";
}

// A channel with the arguments that all have, and more.
std::shared_ptr<grpc::Channel> Open(const std::string& address, const std::optional<ClientTls>& tls,
                                    grpc::ChannelArguments arguments) {
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessageBytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(kMaxMessageBytes));
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestReconnectMs);
  if (!tls) {
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }
  // Certificates are checked against the name that was stated instead of the address's host.
  if (!tls->server_name.empty()) arguments.SetSslTargetNameOverride(tls->server_name);
  return grpc::CreateCustomChannel(
      address, grpc::SslCredentials({tls->ca, tls->key, tls->certificate}), arguments);
}

TraceContext TraceOfProcess() {
  const char* const given = std::getenv("TRACEPARENT");
  return (given == nullptr ? std::nullopt : ParseTraceparent(given)).value_or(NewTrace());
}

}  // namespace

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address,
                                           const std::optional<ClientTls>& tls) {
  return Open(address, tls, {});
}

std::shared_ptr<grpc::Channel> OpenReplicaChannel(const std::string& address,
                                                  const std::optional<ClientTls>& tls,
                                                  const std::string& service) {
  grpc::ChannelArguments arguments;
  // round_robin would renew what the server closes for want of calls.
  arguments.SetInt(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, kIdleMs);
  const std::string health =
      service.empty() ? ""
                      : fmt::format(R"(, "healthCheckConfig": {{"serviceName": "{}"}})", service);
  arguments.SetServiceConfigJSON(
      fmt::format(R"({{"loadBalancingConfig": [{{"round_robin": {{}}}}]{}}})", health));
  return Open(address, tls, std::move(arguments));
}

ShownCertificate CertificateOf(const std::string& address, const ClientTls& tls) {
  return LookAtCertificate(address,
                           {.identity = tls.certificate + '\n' + tls.key, .client_ca = tls.ca});
}

Status CallStatus(const grpc::Status& status, const grpc::ClientContext& context,
                  const std::string& role, const std::string& address,
                  const std::optional<ClientTls>& tls) {
  if (status.ok()) return absl::OkStatus();
  const Status plain = FromGrpc(status);
  const bool not_accepted =
      tls.has_value() && plain.message().find("certificate verify failed") != std::string::npos;
  const std::string reason =
      not_accepted ? FaultOfCertificate(address, *tls) : ReasonOf(plain, role);
  std::string message = fmt::format("{} at {}: {}", role, address, reason);
  if (const std::string id = RequestIdOf(context); !id.empty() && LogTellsMore(plain.code())) {
    message += fmt::format(" (request id {})", id);
  }
  return WithPayloadsOf(plain, Status(plain.code(), message));
}

void AddTrace(grpc::ClientContext& context) {
  static const TraceContext& trace = *new TraceContext(TraceOfProcess());
  static const std::string& request_id = *new std::string(MakeRequestId());
  context.AddMetadata(kTraceparentKey, ToText(NextStep(trace)));
  context.AddMetadata(kRequestIdKey, request_id);
}

}  // namespace neuroshard
