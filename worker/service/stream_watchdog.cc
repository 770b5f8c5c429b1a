#include "worker/service/stream_watchdog.h"

namespace neuroshard {

StreamWatchdog::StreamWatchdog(grpc::ServerContextBase& context, std::chrono::milliseconds timeout)
    : context_(context), timeout_(timeout), thread_([this] { Loop(); }) {}

StreamWatchdog::~StreamWatchdog() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

bool StreamWatchdog::expired() const {
  const MutexLock lock(mutex_);
  return expired_;
}

void StreamWatchdog::Arm() {
  {
    const MutexLock lock(mutex_);
    deadline_ = std::chrono::steady_clock::now() + timeout_;
  }
  changed_.notify_one();
}

void StreamWatchdog::Disarm() {
  const MutexLock lock(mutex_);
  deadline_.reset();
}

void StreamWatchdog::Loop() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (!deadline_.has_value()) {
      lock.Wait(changed_);
    } else if (std::chrono::steady_clock::now() < *deadline_) {
      lock.WaitUntil(changed_, *deadline_);
    } else {
      expired_ = true;
      deadline_.reset();
      context_.TryCancel();
    }
  }
}

}  // namespace neuroshard
