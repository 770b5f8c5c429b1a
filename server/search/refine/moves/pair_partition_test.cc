#include "server/search/refine/moves/pair_partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>

#include "common/base/random.h"

namespace neuroshard {
namespace {

constexpr std::size_t kAllNodes = 1'000'000;
constexpr double kAnyMs = 1e9;

struct Problem {
  std::vector<PartitionItem> items;
  std::array<PartitionSide, 2> sides;
};

// Sides differ, and their memories are short for about half of all partitions.
Problem RandomProblem(Random& random, std::size_t items) {
  Problem made;
  TierBytes sum = {};
  for (std::size_t i = 0; i < items; ++i) {
    PartitionItem& item = made.items.emplace_back();
    for (std::size_t s = 0; s < 2; ++s) {
      item.ms[s] = 1 + 9 * random.UniformReal();
      item.bytes[s][MemoryTier::kDevice] = static_cast<std::int64_t>(random.Below(100));
      item.bytes[s][MemoryTier::kHost] = static_cast<std::int64_t>(random.Below(3) * 50);
    }
    for (const auto& [tier, name] : kWords<MemoryTier>) sum[tier] += item.bytes[0][tier];
  }
  for (PartitionSide& side : made.sides) {
    side.ms = 5 * random.UniformReal();
    for (const auto& [tier, name] : kWords<MemoryTier>) {
      side.room[tier] = static_cast<std::int64_t>((0.4 + 0.4 * random.UniformReal()) *
                                                  static_cast<double>(sum[tier]));
    }
  }
  return made;
}

// None: a side has no room.
std::optional<double> MsOf(const Problem& problem, const std::vector<std::size_t>& side_of) {
  std::array<PartitionSide, 2> held = problem.sides;
  for (std::size_t i = 0; i < side_of.size(); ++i) {
    PartitionSide& side = held[side_of[i]];
    side.ms += problem.items[i].ms[side_of[i]];
    for (const auto& [tier, name] : kWords<MemoryTier>) {
      side.room[tier] -= problem.items[i].bytes[side_of[i]][tier];
      if (side.room[tier] < 0) return std::nullopt;
    }
  }
  return std::max(held[0].ms, held[1].ms);
}

double LeastMs(const Problem& problem) {
  double least_ms = std::numeric_limits<double>::infinity();
  std::vector<std::size_t> side_of(problem.items.size());
  for (std::size_t bits = 0; bits < std::size_t{1} << side_of.size(); ++bits) {
    for (std::size_t i = 0; i < side_of.size(); ++i) side_of[i] = bits >> i & 1;
    least_ms = std::min(least_ms, MsOf(problem, side_of).value_or(least_ms));
  }
  return least_ms;
}

TEST(PartitionPairTest, FindsTheBestOfAllPartitionsWhereItMayLookAtAll) {
  Random random(1);
  int possible = 0;
  int impossible = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const Problem problem = RandomProblem(random, 1 + random.Below(9));
    const PartitionResult found = PartitionPair(problem.items, problem.sides, kAnyMs, kAllNodes);
    const double least_ms = LeastMs(problem);
    ASSERT_EQ(found.sides.has_value(), std::isfinite(least_ms));
    found.sides ? ++possible : ++impossible;
    if (!found.sides) continue;
    const auto ms = MsOf(problem, *found.sides);
    ASSERT_TRUE(ms.has_value());
    EXPECT_NEAR(*ms, least_ms, 1e-9);
    EXPECT_FALSE(
        PartitionPair(problem.items, problem.sides, least_ms * (1 - 1e-9), kAllNodes).sides);
  }
  EXPECT_GT(possible, 100);
  EXPECT_GT(impossible, 20);
}

TEST(PartitionPairTest, WithFewNodesItIsLegalAndBelowTheLimitOrNone) {
  Random random(2);
  int found_some = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const Problem problem = RandomProblem(random, 20);
    const std::size_t max_nodes = 1 + random.Below(200);
    const double below_ms = 50 + 30 * random.UniformReal();
    const PartitionResult found = PartitionPair(problem.items, problem.sides, below_ms, max_nodes);
    EXPECT_LE(found.nodes, max_nodes);
    if (!found.sides) continue;
    ++found_some;
    const auto ms = MsOf(problem, *found.sides);
    ASSERT_TRUE(ms.has_value());
    EXPECT_LT(*ms, below_ms);
  }
  EXPECT_GT(found_some, 30);
}

TEST(PartitionPairTest, LargestFirstIsNotTheBest) {
  Problem problem;
  for (const double ms : {8, 7, 6, 5, 4}) problem.items.push_back({{ms, ms}});
  const auto found = PartitionPair(problem.items, problem.sides, kAnyMs, 100).sides;
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(MsOf(problem, *found), 15);
  EXPECT_EQ((*found)[0], (*found)[1]);
}

TEST(PartitionPairTest, NothingIsPartitionedAsNothing) {
  const std::array<PartitionSide, 2> sides = {PartitionSide{3}, PartitionSide{4}};
  EXPECT_TRUE(PartitionPair({}, sides, 5, 10).sides.has_value());
  EXPECT_FALSE(PartitionPair({}, sides, 4, 10).sides.has_value());
}

}  // namespace
}  // namespace neuroshard
