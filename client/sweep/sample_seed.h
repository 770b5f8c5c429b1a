// Independent random streams for the samples of one sweep.
#pragma once

#include <cstdint>

namespace neuroshard {

// A seed for sample `index` of a sweep: the index-th output of SplitMix64 (Steele, Lea, Flood 2014)
// started at `sweep_seed`.
constexpr std::uint64_t SampleSeed(std::uint64_t sweep_seed, std::uint64_t index) {
  std::uint64_t z = sweep_seed + (index + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace neuroshard
