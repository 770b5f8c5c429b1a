#include "kernels/indices/row_permutation.h"

#include <bit>

#include "common/base/random.h"

namespace neuroshard {
namespace {

// The finaliser of SplitMix64.
std::uint64_t Mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

}  // namespace

RowPermutation::RowPermutation(std::int64_t rows, std::uint64_t seed)
    : rows_(static_cast<std::uint64_t>(rows)),
      half_bits_((static_cast<int>(std::bit_width(rows_ - 1)) + 1) / 2),
      round_keys_() {
  Random random(seed);
  for (std::uint64_t& key : round_keys_) key = random.Next();
}

std::uint64_t RowPermutation::Encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_, right = value & mask;
  for (const std::uint64_t key : round_keys_) {
    const std::uint64_t mixed = left ^ (Mix(right + key) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

std::int64_t RowPermutation::operator()(std::int64_t index) const {
  if (half_bits_ == 0) return index;  // a single row
  std::uint64_t value = Encrypt(static_cast<std::uint64_t>(index));
  while (value >= rows_) value = Encrypt(value);
  return static_cast<std::int64_t>(value);
}

}  // namespace neuroshard
