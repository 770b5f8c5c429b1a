// Deadlines of calls on the monotonic clock, which gRPC keeps time by: one that begins as a
// wall-clock time is early or late by as much as that clock jumps before gRPC has it.
#pragma once

#include <grpc/support/time.h>

#include <chrono>

namespace neuroshard {

// A deadline for whatever takes one in grpcpp: ClientContext, CompletionQueue, Server::Shutdown.
inline gpr_timespec DeadlineIn(std::chrono::milliseconds duration) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_millis(duration.count(), GPR_TIMESPAN));
}

}  // namespace neuroshard
