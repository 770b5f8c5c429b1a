#include "common/rpc/call_threads.h"

#include <grpc/support/time.h>
#include <sys/resource.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace neuroshard {
namespace {

using std::chrono::steady_clock;

// The threads that the work of this thread belongs to, and when its turn began.
thread_local CallThreads* current_threads = nullptr;
thread_local steady_clock::time_point turn_began;

// Lowers the priority of the calling thread: on Linux `who` 0 is no process. Only a higher priority
// needs a privilege.
void LowerOwnPriority(int steps) {
  if (steps > 0) setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + steps);
}

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

struct CallThreads::Waiting {
  std::condition_variable may_go_on;
  bool goes_on = false;
};

CallThreads::~CallThreads() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void CallThreads::Run(std::function<void()> work) {
  {
    const MutexLock lock(mutex_);
    queue_.push_back(std::move(work));
    const bool more =
        static_cast<int>(queue_.size()) > idle_ && static_cast<int>(threads_.size()) < max_threads_;
    try {
      if (more) threads_.emplace_back([this] { Loop(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;  // else the work waits for one that there is
    }
  }
  changed_.notify_one();
}

void CallThreads::Loop() {
  LowerOwnPriority(niceness_);
  current_threads = this;
  MutexLock lock(mutex_);
  while (true) {
    ++idle_;
    while (!stopping_ && queue_.empty()) lock.Wait(changed_);
    --idle_;
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    TakeTurn(lock, new_);
    lock.Unlock();
    work();
    work = nullptr;
    lock.Lock();
    ReturnTurn();
  }
}

void CallThreads::TakeTurn(MutexLock& lock, std::deque<Waiting*>& line) {
  bool handed_over = false;
  if (running_ >= turns_.max_running) {
    Waiting self;
    line.push_back(&self);
    const int before = waiting_.fetch_add(1, std::memory_order_relaxed);
    const auto give_up =
        steady_clock::now() + turns_.max_wait + turns_.length * before / turns_.max_running;
    while (!self.goes_on && lock.WaitUntil(self.may_go_on, give_up)) {
    }
    handed_over = self.goes_on;
    if (!handed_over) {
      std::erase(line, &self);
      waiting_.fetch_sub(1, std::memory_order_relaxed);
    }
  }
  if (!handed_over) ++running_;
  turn_began = steady_clock::now();
}

void CallThreads::ReturnTurn() {
  Waiting* const next = running_ > turns_.max_running ? nullptr : NextWaiting();
  if (next == nullptr) {
    --running_;
    return;
  }
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  next->goes_on = true;
  next->may_go_on.notify_one();
}

CallThreads::Waiting* CallThreads::NextWaiting() {
  if (new_.empty() && paused_.empty()) return nullptr;
  const bool a_new_one = paused_.empty() || (new_ones_turn_ && !new_.empty());
  new_ones_turn_ = !a_new_one;
  std::deque<Waiting*>& line = a_new_one ? new_ : paused_;
  Waiting* const next = line.front();
  line.pop_front();
  return next;
}

void CallThreads::GiveWay() {
  CallThreads* const threads = current_threads;
  if (threads == nullptr || threads->waiting_.load(std::memory_order_relaxed) == 0 ||
      steady_clock::now() - turn_began < threads->turns_.length) {
    return;
  }
  MutexLock lock(threads->mutex_);
  threads->ReturnTurn();
  threads->TakeTurn(lock, threads->paused_);
}

CallThreads::OffTurn::OffTurn() {
  if (current_threads == nullptr) return;
  const MutexLock lock(current_threads->mutex_);
  current_threads->ReturnTurn();
}

CallThreads::OffTurn::~OffTurn() {
  if (current_threads == nullptr) return;
  MutexLock lock(current_threads->mutex_);
  current_threads->TakeTurn(lock, current_threads->paused_);
}

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
