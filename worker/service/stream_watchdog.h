// StreamWatchdog: ends a streaming call whose client neither sends nor reads, so that it does not
// hold a device for ever.
#pragma once

#include <grpcpp/server_context.h>

#include <chrono>
#include <condition_variable>
#include <optional>
#include <thread>

#include "common/base/mutex.h"

namespace neuroshard {

// While a Wait object lives, the client is expected to do something within `timeout`; if it does
// not, the call is cancelled, which makes the blocked Read or Write return false.
class StreamWatchdog {
 public:
  class Wait {
   public:
    explicit Wait(StreamWatchdog& watchdog) : watchdog_(watchdog) { watchdog_.Arm(); }
    ~Wait() { watchdog_.Disarm(); }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    StreamWatchdog& watchdog_;
  };

  // `context` must outlive the watchdog.
  StreamWatchdog(grpc::ServerContextBase& context, std::chrono::milliseconds timeout);
  ~StreamWatchdog();

  bool expired() const;

 private:
  void Arm();
  void Disarm();
  void Loop();

  grpc::ServerContextBase& context_;
  const std::chrono::milliseconds timeout_;
  mutable Mutex mutex_;
  std::condition_variable changed_;
  // None: disarmed.
  std::optional<std::chrono::steady_clock::time_point> deadline_ NS_GUARDED_BY(mutex_);
  bool expired_ NS_GUARDED_BY(mutex_) = false;
  bool stopping_ NS_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace neuroshard
