#include "kernels/cpu/row_sort.h"

#include <array>
#include <numeric>
#include <utility>
#include <vector>

namespace neuroshard {
namespace {

// 256 destinations keep their cache lines and TLB entries; wider digits would save passes but not
// time.
constexpr int kDigitBits = 8;
constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;

}  // namespace

SortedRows SortByRow(SortedRows rows, SortedRows spare, int low_bit, int high_bit) {
  const int passes = (high_bit - low_bit + kDigitBits - 1) / kDigitBits;
  const auto digit = [low_bit](std::uint64_t key, int pass) {
    return (key >> (low_bit + pass * kDigitBits)) & (kDigits - 1);
  };
  std::vector<std::array<std::size_t, kDigits>> counts(passes);
  for (const std::uint64_t key : rows.keys) {
    for (int pass = 0; pass < passes; ++pass) ++counts[pass][digit(key, pass)];
  }
  for (int pass = 0; pass < passes; ++pass) {
    auto& next = counts[pass];
    const bool all_equal =
        !rows.keys.empty() && next[digit(rows.keys[0], pass)] == rows.keys.size();
    if (all_equal) continue;
    std::exclusive_scan(next.begin(), next.end(), next.begin(), std::size_t{0});
    for (std::size_t i = 0; i < rows.keys.size(); ++i) {
      const std::size_t to = next[digit(rows.keys[i], pass)]++;
      spare.keys[to] = rows.keys[i];
      if (!rows.payload.empty()) spare.payload[to] = rows.payload[i];
    }
    std::swap(rows, spare);
  }
  return rows;
}

}  // namespace neuroshard
