// Independent random streams for the samples of one sweep.
#pragma once

#include <cstdint>

#include "common/base/hash.h"

namespace neuroshard {

// A seed for sample `index` of a sweep: the index-th output of SplitMix64 (Steele, Lea, Flood 2014)
// started at `sweep_seed`.
constexpr std::uint64_t SampleSeed(std::uint64_t sweep_seed, std::uint64_t index) {
  return MixBits(sweep_seed + (index + 1) * kGoldenGamma);
}

}  // namespace neuroshard
