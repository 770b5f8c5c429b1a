#include "kernels/cpu/row_sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/base/random.h"

namespace neuroshard {
namespace {

TEST(SortByRowTest, AgreesWithAStableSort) {
  Random random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const int low_bit = static_cast<int>(random.Below(20));
    const int bits = static_cast<int>(random.Below(44));
    std::vector<std::uint64_t> keys(random.Below(500));
    std::vector<float> payload(random.Below(2) == 0 ? keys.size() : 0);
    for (std::uint64_t& key : keys)
      key = random.Next() & ((std::uint64_t{1} << (low_bit + bits)) - 1);
    for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<float>(i);
    std::vector<std::pair<std::uint64_t, float>> expected;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      expected.emplace_back(keys[i], payload.empty() ? 0.0F : payload[i]);
    }
    std::stable_sort(expected.begin(), expected.end(), [low_bit](const auto& a, const auto& b) {
      return a.first >> low_bit < b.first >> low_bit;
    });
    std::vector<std::uint64_t> spare_keys(keys.size());
    std::vector<float> spare_payload(payload.size());

    const SortedRows sorted =
        SortByRow({keys, payload}, {spare_keys, spare_payload}, low_bit, low_bit + bits);

    ASSERT_EQ(sorted.keys.size(), expected.size());
    ASSERT_EQ(sorted.payload.size(), payload.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(sorted.keys[i], expected[i].first);
      if (!sorted.payload.empty()) {
        ASSERT_EQ(sorted.payload[i], expected[i].second);
      }
    }
  }
}

}  // namespace
}  // namespace neuroshard
