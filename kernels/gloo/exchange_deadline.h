// One deadline for everything that an exchange waits for.
#pragma once

#include <algorithm>
#include <chrono>

namespace neuroshard {

// Turns one timeout into what is left of it at each wait.
class ExchangeDeadline {
 public:
  explicit ExchangeDeadline(std::chrono::milliseconds timeout) : end_(Clock::now() + timeout) {}

  // Gloo takes a negative timeout for "use the default", so never less than 1 ms.
  std::chrono::milliseconds Remaining() const {
    return std::max(std::chrono::milliseconds(1),
                    std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now()));
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end_;
};

}  // namespace neuroshard
