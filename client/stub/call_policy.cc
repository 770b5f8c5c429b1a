#include "client/stub/call_policy.h"

#include <random>
#include <thread>
#include <utility>

#include "common/rpc/status_mapping.h"

namespace neuroshard {
namespace {

constexpr std::chrono::milliseconds kNone{0};
constexpr std::chrono::milliseconds kToldWait{1'000};

}  // namespace

Status Retry(const CallPolicy& policy, const std::function<Status()>& attempt) {
  // Jitter is there to differ between processes, so this seed is not a fixed one.
  Backoff backoff(policy.first_backoff, policy.longest_backoff, std::random_device{}());
  const auto last_start = std::chrono::steady_clock::now() + policy.deadline;
  bool told = false;
  for (int left = policy.max_attempts;; --left) {
    Status status = attempt();
    const auto asked = RetryAfterOf(status);
    const bool may_help = status.code() == absl::StatusCode::kUnavailable || asked.has_value();
    if (!may_help || left <= 1) return status;
    const auto wait = asked.value_or(kNone) + backoff.Next();
    if (std::chrono::steady_clock::now() + wait > last_start) return status;
    if (asked >= kToldWait && policy.on_wait && !std::exchange(told, true)) {
      policy.on_wait(status, std::chrono::ceil<std::chrono::milliseconds>(wait));
    }
    std::this_thread::sleep_for(wait);
  }
}

}  // namespace neuroshard
