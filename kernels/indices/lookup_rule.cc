#include "kernels/indices/lookup_rule.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <numeric>

namespace neuroshard {

RandomPermutation::RandomPermutation(std::int64_t size, std::uint64_t seed)
    : size_(static_cast<std::uint64_t>(size)) {
  const int bits = static_cast<int>(std::bit_width(size_ - 1));
  mask_ = (std::uint64_t{1} << bits) - 1;
  fold_bits_ = std::max(1, (bits + 1) / 2);
  for (int round = 0; round < kRounds; ++round) keys_[round] = SplitMix(seed + round);
}

void RandomPermutation::Apply(std::span<std::int64_t> indices) const {
  // Which values land outside of [0, size) is random, so a branch on it would be mispredicted.
  // Instead they are listed without a branch, and the list goes through the next round.
  constexpr std::size_t kBlock = 512;
  std::array<std::uint32_t, kBlock> outside;
  for (std::size_t begin = 0; begin < indices.size(); begin += kBlock) {
    std::int64_t* const block = indices.data() + begin;
    std::size_t left = std::min(kBlock, indices.size() - begin);
    std::iota(outside.begin(), outside.begin() + left, 0u);
    while (left > 0) {
      std::size_t still = 0;
      for (std::size_t k = 0; k < left; ++k) {
        const std::uint32_t i = outside[k];
        const std::uint64_t value = Scatter(static_cast<std::uint64_t>(block[i]));
        block[i] = static_cast<std::int64_t>(value);
        outside[still] = i;
        still += value >= size_ ? 1 : 0;
      }
      left = still;
    }
  }
}

}  // namespace neuroshard
