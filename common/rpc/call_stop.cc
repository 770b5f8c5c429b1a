#include "common/rpc/call_stop.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <chrono>

#include "common/rpc/call_threads.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Kept for checking, pricing, encoding and sending the answer: a tenth of the time, at least 5 ms
// (a large plan's encoding) and at most 250 ms (nothing takes longer).
nanoseconds AnswerMargin(nanoseconds remaining) {
  return std::clamp<nanoseconds>(remaining / 10, milliseconds(5), milliseconds(250));
}

// Deadlines beyond this are no deadlines; also keeps the arithmetic far from overflow.
constexpr std::chrono::hours kLongestDeadline{24 * 365};

constexpr milliseconds kCancelInterval{2};

}  // namespace

CallStop::CallStop(const grpc::ServerContextBase& context, const StopSignal& draining,
                   const Clock& clock, std::optional<milliseconds> longest)
    : context_(context), draining_(draining), clock_(clock) {
  if (longest.has_value()) stop_at_ = clock.Now() + *longest;
  // The monotonic one that gRPC has, not the wall-clock time that it makes of it.
  const gpr_timespec left =
      gpr_time_sub(gpr_convert_clock_type(context.raw_deadline(), GPR_CLOCK_MONOTONIC),
                   gpr_now(GPR_CLOCK_MONOTONIC));
  if (left.tv_sec >= std::chrono::seconds(kLongestDeadline).count()) return;
  const nanoseconds remaining = std::chrono::seconds(left.tv_sec) + nanoseconds(left.tv_nsec);
  const TimePoint answer_at = clock.Now() + (remaining - AnswerMargin(remaining));
  stop_at_ = stop_at_.has_value() ? std::min(*stop_at_, answer_at) : answer_at;
}

bool CallStop::ShouldStop() const {
  CallThreads::GiveWay();
  return draining_.ShouldStop() || deadline_reached() || CancelSeen();
}

// A search asks at every step, and gRPC looks at its sockets for the answer, which takes longer
// than a step.
bool CallStop::CancelSeen() const {
  if (cancel_seen_.load(std::memory_order_relaxed)) return true;
  const TimePoint::duration now = clock_.Now().time_since_epoch();
  if (now < next_check_at_.load(std::memory_order_relaxed)) return false;
  next_check_at_.store(now + kCancelInterval, std::memory_order_relaxed);
  if (!cancelled()) return false;
  cancel_seen_.store(true, std::memory_order_relaxed);
  return true;
}

bool CallStop::deadline_reached() const {
  return stop_at_.has_value() && clock_.Now() >= *stop_at_;
}

}  // namespace neuroshard
