// absl::Status <-> grpc::Status. Codes are the same numbers. Reasons travel as google.rpc.ErrorInfo
// of the domain "neuroshard", violations as google.rpc.BadRequest, both inside a google.rpc.Status
// in grpc-status-details-bin, as other gRPC clients expect them.
#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <optional>

#include "common/base/status.h"

namespace neuroshard {

// A client accepts 8 KiB of trailing metadata unless it asks for more, and drops the whole error
// beyond that. So messages and details are cut to fit: long texts end in "...", and violations that
// do not fit are counted in a last entry with the field "...".
grpc::Status ToGrpc(const Status& status);

// The status with a google.rpc.RetryInfo, which ToGrpc passes on: how long a client should wait
// before it tries the same again. For refusals that are about the server and not about the request.
Status WithRetryAfter(Status status, std::chrono::milliseconds delay);
// What WithRetryAfter said, here or on the server that the status came from.
std::optional<std::chrono::milliseconds> RetryAfterOf(const Status& status);

// The status a server of ours (or another that uses google.rpc.Status) sent. Restores violations
// for Violations::FromStatus and the reason for ReasonOf.
Status FromGrpc(const grpc::Status& status);

}  // namespace neuroshard
