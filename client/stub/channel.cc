#include "client/stub/channel.h"

#include <string_view>

#include "common/rpc/status_mapping.h"

namespace neuroshard {
namespace {

// A server that was restarted on its address is found again within about this time.
constexpr int kLongestReconnectMs = 1'000;
// What one attempt to connect may take, TCP and HTTP/2 handshake together: a busy host needs more
// than the backoff. (gRPC has one argument for it, whose name speaks of the backoff.)
constexpr int kConnectMs = 10'000;

// What gRPC says when there is no connection, in words for whoever has to mend it.
std::string Plainer(const std::string& message) {
  const auto has = [&message](std::string_view part) {
    return message.find(part) != std::string::npos;
  };
  if (has("http1.x server")) {
    return "what listens there speaks HTTP/1.1 and not gRPC: a port of metrics, perhaps";
  }
  if (has("Connection refused")) return "nothing listens there (Connection refused)";
  if (has("Socket closed")) {
    return "the connection was closed: the server ended, or is a server with TLS, perhaps, which "
           "takes a certificate (--tls-ca, --tls-cert, --tls-key)";
  }
  if (has("DNS resolution failed")) return "there is no host of that name (DNS resolution failed)";
  if (message == "Deadline Exceeded") return "no answer within the time that the caller allowed";
  return message;
}

// gRPC itself answers calls that a server does not know, without a word.
std::string ReasonOf(const Status& status, const std::string& role) {
  if (!status.message().empty()) return Plainer(Message(status));
  if (status.code() == absl::StatusCode::kUnimplemented) {
    return fmt::format("what listens there does not know this call: no {}, or an older one", role);
  }
  return absl::StatusCodeToString(status.code());
}

}  // namespace

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address,
                                           const std::optional<ClientTls>& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessageBytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(kMaxMessageBytes));
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestReconnectMs);
  const auto credentials = tls.has_value()
                               ? grpc::SslCredentials({tls->ca, tls->key, tls->certificate})
                               : grpc::InsecureChannelCredentials();
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

Status CallStatus(const grpc::Status& status, const std::string& role, const std::string& address) {
  if (status.ok()) return absl::OkStatus();
  const Status plain = FromGrpc(status);
  Status named(plain.code(), fmt::format("{} at {}: {}", role, address, ReasonOf(plain, role)));
  plain.ForEachPayload(
      [&named](auto type, const auto& payload) { named.SetPayload(type, payload); });
  return named;
}

}  // namespace neuroshard
