// A crowd: many callers of ShardPlan in one process, whose own queue is short, so that what they
// measure is the server's.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "neuroshard/v1/planner.pb.h"

namespace neuroshard {

struct CrowdOptions {
  std::string planner;  // HOST:PORT
  int callers = 400;
  std::chrono::milliseconds length{20'000};  // no call begins afterwards
  std::chrono::milliseconds spread{1'000};   // first calls, evenly; 0: all at once
  std::chrono::milliseconds deadline{60'000};
};

struct CrowdCall {
  int caller = 0;                                        // by the order in which callers connected
  std::int64_t due_ns = 0;                               // when it should have begun
  std::int64_t began_ns = 0;                             // right before it is given to gRPC
  std::int64_t ended_ns = 0;                             // when its caller has the answer
  int code = 0;                                          // of gRPC
  std::optional<std::chrono::milliseconds> retry_after;  // google.rpc.RetryInfo
};

// Every caller has a connection of its own and one call at a time: the next one as soon as it has a
// plan, after a refusal when the refusal says so (else after 250 ms). All of them share one thread
// and one completion queue, and the request's bytes. Times are of std::chrono::steady_clock.
// UNAVAILABLE where not all can connect.
StatusOr<std::vector<CrowdCall>> RunCrowd(const CrowdOptions& options,
                                          const v1::ShardPlanRequest& request);

}  // namespace neuroshard
