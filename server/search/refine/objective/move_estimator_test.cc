#include <gtest/gtest.h>

#include "tests/support/refine_bed.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::RefineBed;

TEST(MoveEstimatorTest, NothingChangedIsEstimatedAsItIs) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    RefineBed bed(seed);
    if (!bed.LoadLegal()) continue;
    const Solution& solution = bed.bench.solution;
    const double value_ms = bed.bench.pricer.objective().value_ms();
    EXPECT_NEAR(bed.bench.pricer.Estimate({}, {}), value_ms, 1e-9);
    for (int t = 0; t < static_cast<int>(bed.request.tables.size()); ++t) {
      std::vector<Unit> units;
      for (const int id : solution.units_of_table(t)) units.push_back(solution.unit(id));
      EXPECT_NEAR(bed.bench.pricer.Estimate(solution.units_of_table(t), units), value_ms, 1e-9);
    }
  }
}

// What the shards of a rank add to it is what they cost and its own part of communication.
TEST(MoveEstimatorTest, SharesOfARankAddUp) {
  RefineBed bed(4);
  ASSERT_TRUE(bed.LoadLegal());
  const Solution& solution = bed.bench.solution;
  const MovePricer& pricer = bed.bench.pricer;
  std::vector<double> shares(static_cast<std::size_t>(bed.num_ranks()), 0.0);
  for (const Unit& unit : solution.Units()) {
    for (int i = 0; i < unit.shards.count; ++i) {
      const int rank = solution.RankOf(unit, i);
      shares[static_cast<std::size_t>(rank)] += pricer.ShareOf(rank, unit.shards.at(i));
    }
  }
  for (int r = 0; r < bed.num_ranks(); ++r) {
    const double comm_ms = pricer.surrogate().forward_own * solution.rank(r).forward_load +
                           pricer.surrogate().backward_own * solution.rank(r).backward_load;
    EXPECT_NEAR(shares[static_cast<std::size_t>(r)],
                pricer.compute_scale(r) * solution.rank(r).shard_costs_ms + comm_ms, 1e-4);
  }
}

}  // namespace
}  // namespace neuroshard
