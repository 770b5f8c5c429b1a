#include "common/rpc/call_threads.h"

#include <sys/resource.h>

#include <system_error>
#include <utility>

namespace neuroshard {
namespace {

// Of the calling thread: on Linux `who` 0 is no process. Only a higher priority needs a privilege.
void LowerOwnPriority(int steps) {
  if (steps > 0) setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + steps);
}

}  // namespace

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
  MutexLock lock(mutex_);
  while (true) {
    ++idle_;
    while (!stopping_ && queue_.empty()) lock.Wait(changed_);
    --idle_;
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.Unlock();
    work();
    work = nullptr;
    lock.Lock();
  }
}

}  // namespace neuroshard
