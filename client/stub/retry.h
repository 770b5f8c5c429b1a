// Repeats calls that may be repeated.
#pragma once

#include <functional>

#include "client/stub/call_policy.h"
#include "common/base/status.h"

namespace neuroshard {

// Calls `attempt` until it returns something other than UNAVAILABLE or the policy's attempts are
// used up; waits in between with exponential backoff and jitter. Returns the last result. Blocks.
Status RetryUnavailable(const CallPolicy& policy, const std::function<Status()>& attempt);

}  // namespace neuroshard
