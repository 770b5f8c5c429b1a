#include "kernels/indices/random_permutation.h"

#include <algorithm>
#include <bit>

#include "kernels/indices/counter_random.h"

namespace neuroshard {

RandomPermutation::RandomPermutation(std::int64_t size, std::uint64_t seed)
    : size_(static_cast<std::uint64_t>(size)) {
  const int bits = static_cast<int>(std::bit_width(size_ - 1));
  mask_ = (std::uint64_t{1} << bits) - 1;
  fold_bits_ = std::max(1, (bits + 1) / 2);
  for (int round = 0; round < kRounds; ++round) keys_[round] = SplitMix(seed + round);
}

}  // namespace neuroshard
