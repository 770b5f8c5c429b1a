// A random order of many things in constant memory, each one's place by itself.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/indices/host_and_device.h"

namespace neuroshard {

// A bijection of [0, size): rounds of adding a key, multiplying and folding the upper half onto the
// lower one, each of them a bijection of the next power of two, walked along its cycles until it
// lands inside (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002; fewer than two
// steps on average). Not cryptographic: six rounds are as many as it takes for pairs of values to
// be independent over the seeds, also in small ranges, where the tests can see it.
class RandomPermutation {
 public:
  RandomPermutation() = default;  // of one thing
  // size in [1, 2^62].
  RandomPermutation(std::int64_t size, std::uint64_t seed);

  // Where `index` of [0, size) goes.
  NS_DEVICE_CODE std::int64_t operator()(std::int64_t index) const {
    auto value = static_cast<std::uint64_t>(index);
    do {
      value = Scatter(value);
    } while (value >= size_);
    return static_cast<std::int64_t>(value);
  }

  // The same of every one of them, in place; on a CPU quicker than one by one.
  void Apply(std::span<std::int64_t> indices) const;

 private:
  static constexpr int kRounds = 6;

  NS_DEVICE_CODE std::uint64_t Scatter(std::uint64_t value) const {
    for (int round = 0; round < kRounds; round += 2) {  // odd factors, those of SplitMix
      value = (value + keys_[round]) * 0xbf58476d1ce4e5b9U & mask_;
      value ^= value >> fold_bits_;
      value = (value + keys_[round + 1]) * 0x94d049bb133111ebU & mask_;
      value ^= value >> fold_bits_;
    }
    return value;
  }

  std::uint64_t size_ = 1;
  std::uint64_t mask_ = 0;
  std::uint64_t keys_[kRounds] = {};
  int fold_bits_ = 1;
};

}  // namespace neuroshard
