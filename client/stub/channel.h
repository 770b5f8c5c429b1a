// Connections to our servers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/bytes.h"
#include "common/base/status.h"

namespace neuroshard {

// Plans and requests of a hundred thousand tables are tens of MiB.
inline constexpr std::int64_t kMaxMessageBytes = 64 * kMiB;

// Lazy: an address that nobody listens on shows up in the first call. HTTP proxies of the
// environment are not used.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address);

// A failed call as a Status (violations restored) whose message names the server: "planner at
// 127.0.0.1:50051: ...". OK stays OK.
Status CallStatus(const grpc::Status& status, const std::string& role, const std::string& address);

}  // namespace neuroshard
