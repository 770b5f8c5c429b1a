// Samples of one sweep: independent random streams for them, and all of them several times, far apart.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/hash.h"

namespace neuroshard {

// A seed for sample `index` of a sweep: the index-th output of SplitMix64 (Steele, Lea, Flood 2014)
// started at `sweep_seed`.
constexpr std::uint64_t SampleSeed(std::uint64_t sweep_seed, std::uint64_t index) {
  return MixBits(sweep_seed + (index + 1) * kGoldenGamma);
}

// `samples`, then all of them again, `repeats` (>= 1) times in all. The first pass keeps its sample
// ids; in pass p an id gets ".p" behind it ("c000012.2"). Everything else of a repeated sample is
// the same, which is how pre-training knows it again.
template <typename Sample>
std::vector<Sample> InPasses(std::vector<Sample> samples, int repeats) {
  const std::size_t distinct = samples.size();
  samples.reserve(distinct * static_cast<std::size_t>(repeats));
  for (int pass = 2; pass <= repeats; ++pass) {
    for (std::size_t i = 0; i < distinct; ++i) {
      Sample again = samples[i];
      again.sample_id += fmt::format(".{}", pass);
      samples.push_back(std::move(again));
    }
  }
  return samples;
}

}  // namespace neuroshard
