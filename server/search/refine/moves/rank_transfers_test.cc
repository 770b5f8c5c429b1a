#include <gtest/gtest.h>

#include <set>

#include "server/search/refine/moves/rank_moves.h"
#include "tests/support/refine_bed.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::RefineBed;

TEST(RankTransfersTest, ColumnsAreNeitherLostNorMade) {
  int transfers = 0;
  int returns = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    RefineBed bed(seed);
    if (!bed.LoadLegal()) continue;
    const Solution& solution = bed.bench.solution;
    RankTransfers listed(bed.bench);
    for (int source = 0; source < bed.num_ranks(); ++source) {
      listed.List(source);
      const std::set<int> targets(listed.targets().begin(), listed.targets().end());
      EXPECT_EQ(targets.size(), listed.targets().size());
      EXPECT_EQ(std::ssize(targets), bed.num_ranks() - 1);  // there are 16 at most
      EXPECT_FALSE(targets.contains(source));
      const auto cols_of = [&](int id) { return id < 0 ? 0 : solution.unit(id).cols; };
      for (const RankTransfers::Transfer& transfer : listed.transfers()) {
        const auto& departure = listed.departures()[static_cast<std::size_t>(transfer.departure)];
        ASSERT_EQ(solution.unit(departure.unit).place, source);
        EXPECT_EQ(departure.rest.cols + departure.cols, cols_of(departure.unit));
        EXPECT_EQ(transfer.arriving.cols, departure.cols + cols_of(transfer.joined));
        EXPECT_EQ(transfer.arriving.place,
                  listed.targets()[static_cast<std::size_t>(transfer.target)]);
        ++transfers;
      }
      for (std::size_t t = 0; t < listed.targets().size(); ++t) {
        for (std::size_t r = listed.returns_begin(t); r < listed.returns_begin(t + 1); ++r) {
          const RankTransfers::Return& back = listed.returns()[r];
          EXPECT_EQ(solution.unit(back.unit).place, listed.targets()[t]);
          EXPECT_EQ(back.arriving.cols, cols_of(back.unit) + cols_of(back.joined));
          EXPECT_EQ(back.arriving.place, source);
          ++returns;
        }
      }
    }
  }
  EXPECT_GT(transfers, 500);
  EXPECT_GT(returns, 500);
}

}  // namespace
}  // namespace neuroshard
