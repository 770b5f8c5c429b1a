// Ctrl-C and SIGTERM as a StopSignal, for a process whose main thread does the work.
#pragma once

#include <csignal>

#include "common/base/stop_signal.h"

namespace neuroshard {

// Installs handlers for SIGINT and SIGTERM that do nothing but set a flag. At most one at a time.
class InterruptSignal final : public StopSignal {
 public:
  InterruptSignal() {
    std::signal(SIGINT, OnSignal);
    std::signal(SIGTERM, OnSignal);
  }
  ~InterruptSignal() override {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
  }
  InterruptSignal(const InterruptSignal&) = delete;
  InterruptSignal& operator=(const InterruptSignal&) = delete;

  bool ShouldStop() const override { return interrupted_ != 0; }

 private:
  static void OnSignal(int) { interrupted_ = 1; }

  static inline volatile std::sig_atomic_t interrupted_ = 0;
};

}  // namespace neuroshard
