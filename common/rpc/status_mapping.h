// absl::Status <-> grpc::Status. Codes are the same numbers. Reasons travel as google.rpc.ErrorInfo
// of the domain "neuroshard", violations as google.rpc.BadRequest, both inside a google.rpc.Status in grpc-status-details-bin, as other gRPC
// clients expect them.
#pragma once

#include <grpcpp/support/status.h>

#include "common/base/status.h"

namespace neuroshard {

// A client accepts 8 KiB of trailing metadata unless it asks for more, and drops the whole error
// beyond that. So messages and details are cut to fit: long texts end in "...", and violations that
// do not fit are counted in a last entry with the field "...".
grpc::Status ToGrpc(const Status& status);

// The status a server of ours (or another that uses google.rpc.Status) sent. Restores violations
// for Violations::FromStatus and the reason for ReasonOf.
Status FromGrpc(const grpc::Status& status);

}  // namespace neuroshard
