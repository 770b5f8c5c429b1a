// Random numbers that are the same on every platform: the standard fixes the engine, but not its
// distributions.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace neuroshard {

// std::mt19937_64 with distributions of our own. The same seed gives the same numbers on every
// platform. Not for concurrent use.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t Next() { return engine_(); }

  // Uniform in [0, 1).
  double UniformReal() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

  // Uniform in [0, bound), bound >= 1. Multiply-shift: the bias is below bound / 2^64.
  std::uint64_t Below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }

  // Uniform in [low, high], both included.
  std::int64_t Between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(Below(static_cast<std::uint64_t>(high - low) + 1));
  }

  template <typename T>
  void Shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[Below(i)]);
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace neuroshard
