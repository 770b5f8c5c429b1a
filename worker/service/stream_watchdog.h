// StreamWatchdog: ends a streaming call whose client neither sends nor reads, so that it does not
// hold a device for ever.
#pragma once

#include <grpcpp/server_context.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

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
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::chrono::steady_clock::time_point>
      deadline_;           // guarded by mutex_; none: disarmed
  bool expired_ = false;   // guarded by mutex_
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace neuroshard
