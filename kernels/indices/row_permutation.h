// A random order of a table's rows in constant memory.
#pragma once

#include <array>
#include <cstdint>

namespace neuroshard {

// A bijection of [0, rows): a four-round Feistel network over the next power of four, walked along
// its cycles until it lands inside (Black and Rogaway, "Ciphers with arbitrary finite domains",
// 2002; at most four steps on average). Not cryptographic.
class RowPermutation {
 public:
  // rows in [1, 2^62].
  RowPermutation(std::int64_t rows, std::uint64_t seed);

  // Where row `index` of [0, rows) goes.
  std::int64_t operator()(std::int64_t index) const;

 private:
  std::uint64_t Encrypt(std::uint64_t value) const;

  std::uint64_t rows_;
  int half_bits_;
  std::array<std::uint64_t, 4> round_keys_;
};

}  // namespace neuroshard
