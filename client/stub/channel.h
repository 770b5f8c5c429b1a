// Connections to our servers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "client/stub/call_policy.h"
#include "common/base/bytes.h"
#include "common/base/status.h"

namespace neuroshard {

// Plans and requests of a hundred thousand tables are tens of MiB.
inline constexpr std::int64_t kMaxMessageBytes = 64 * kMiB;

// Lazy: an address that nobody listens on shows up in the first call. HTTP proxies of the
// environment are not used. With `tls`, the server's certificate must name the address's host.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address,
                                           const std::optional<ClientTls>& tls);

// A failed call as a Status (violations restored) whose message names the server: "planner at
// 127.0.0.1:50051: ...", and, where the server's log tells more, the id to look for: "(request id
// ...)". OK stays OK. `context` is the call's, which has ended.
Status CallStatus(const grpc::Status& status, const grpc::ClientContext& context,
                  const std::string& role, const std::string& address);

}  // namespace neuroshard
