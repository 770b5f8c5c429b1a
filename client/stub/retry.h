// Repeats calls that may be repeated.
#pragma once

#include <functional>

#include "client/stub/call_policy.h"
#include "common/base/status.h"

namespace neuroshard {

// Calls `attempt` while it returns UNAVAILABLE, or says when to try again (google.rpc.RetryInfo, as
// an overloaded planner does), until the policy's attempts are used up. Waits in between with
// exponential backoff and jitter, on top of what the server asks for, if that is not longer than
// the policy's deadline. Returns the last result. Blocks.
Status Retry(const CallPolicy& policy, const std::function<Status()>& attempt);

}  // namespace neuroshard
