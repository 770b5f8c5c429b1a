// Connections to our servers.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "client/stub/call_policy.h"
#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/rpc/tls_files.h"

namespace neuroshard {

// Plans and requests of a hundred thousand tables are tens of MiB.
inline constexpr std::int64_t kMaxMessageBytes = 64 * kMiB;

// Lazy: an address that nobody listens on shows up in the first call. HTTP proxies of the
// environment are not used. With `tls`, the server's certificate must name the address's host, or
// ClientTls::server_name.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address,
                                           const std::optional<ClientTls>& tls);

// A channel to a replica of a server: calls go in turn (round_robin) to every address that HOST of
// `address` resolves to and that can be reached; with a `service`, to those alone whose health
// (grpc.health.v1) of it is good. What a name stands for is kept up to date by others, and may be a
// proxy, whose health would be one replica's. A call that a replica did not answer is repeated by
// Retry alone.
std::shared_ptr<grpc::Channel> OpenReplicaChannel(const std::string& address,
                                                  const std::optional<ClientTls>& tls,
                                                  const std::string& service);

// What a server shows; see LookAtCertificate.
ShownCertificate CertificateOf(const std::string& address, const ClientTls& tls);

// A failed call as a Status (violations restored) whose message names the server: "planner at
// 127.0.0.1:50051: ...", and, where the server's log tells more, the id to look for: "(request id
// ...)". OK stays OK. `context` is the call's, which has ended. Where the certificate of the server
// was not accepted, it is looked at once more, for the reason.
Status CallStatus(const grpc::Status& status, const grpc::ClientContext& context,
                  const std::string& role, const std::string& address,
                  const std::optional<ClientTls>& tls = std::nullopt);

// One request id and one trace for the process, which is one command: of the environment variable
// TRACEPARENT where that is a W3C traceparent, else new ones. Each call is a step of the trace.
// Thread-safe.
void AddTrace(grpc::ClientContext& context);

}  // namespace neuroshard
