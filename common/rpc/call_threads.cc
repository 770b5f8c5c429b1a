#include "common/rpc/call_threads.h"

#include <sys/resource.h>

#include <chrono>
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
        steady_clock::now() + turns_.patience + turns_.length * before / turns_.max_running;
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

}  // namespace neuroshard
