#include "client/stub/retry.h"

#include <random>
#include <thread>

#include "client/stub/backoff.h"

namespace neuroshard {

Status RetryUnavailable(const CallPolicy& policy, const std::function<Status()>& attempt) {
  // Jitter is there to differ between processes, so this seed is not a fixed one.
  Backoff backoff(policy.first_backoff, policy.longest_backoff, std::random_device{}());
  for (int left = policy.max_attempts;; --left) {
    Status status = attempt();
    if (status.code() != absl::StatusCode::kUnavailable || left <= 1) return status;
    std::this_thread::sleep_for(backoff.Next());
  }
}

}  // namespace neuroshard
