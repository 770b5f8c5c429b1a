// Backoff: the wait between attempts of a call.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "common/base/random.h"

namespace neuroshard {

// Exponential with "equal jitter": the n-th wait is uniform in [c/2, c] with c = min(first * 2^n,
// longest), so that clients that failed together do not come back together. Not thread-safe.
class Backoff {
 public:
  Backoff(std::chrono::milliseconds first, std::chrono::milliseconds longest, std::uint64_t seed)
      : first_(first), longest_(longest), ceiling_(first), random_(seed) {}

  std::chrono::milliseconds Next() {
    const std::int64_t ceiling_ms = std::min(ceiling_, longest_).count();
    ceiling_ = std::min(ceiling_ * 2, longest_);
    return std::chrono::milliseconds(random_.Between(ceiling_ms / 2, ceiling_ms));
  }

  // After a success: the next wait is a first one again.
  void Reset() { ceiling_ = first_; }

 private:
  std::chrono::milliseconds first_;
  std::chrono::milliseconds longest_;
  std::chrono::milliseconds ceiling_;
  Random random_;
};

}  // namespace neuroshard
