#include "worker/service/stream_watchdog.h"

namespace neuroshard {

StreamWatchdog::StreamWatchdog(grpc::ServerContextBase& context, std::chrono::milliseconds timeout)
    : context_(context), timeout_(timeout), thread_([this] { Loop(); }) {}

StreamWatchdog::~StreamWatchdog() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

bool StreamWatchdog::expired() const {
  std::lock_guard lock(mutex_);
  return expired_;
}

void StreamWatchdog::Arm() {
  {
    std::lock_guard lock(mutex_);
    deadline_ = std::chrono::steady_clock::now() + timeout_;
  }
  changed_.notify_one();
}

void StreamWatchdog::Disarm() {
  std::lock_guard lock(mutex_);
  deadline_.reset();
}

void StreamWatchdog::Loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!deadline_.has_value()) {
      changed_.wait(lock);
    } else if (std::chrono::steady_clock::now() < *deadline_) {
      changed_.wait_until(lock, *deadline_);
    } else {
      expired_ = true;
      deadline_.reset();
      context_.TryCancel();
    }
  }
}

}  // namespace neuroshard
