// The neighbourhoods: what they list is complete, allowed exactly where the plan would be legal,
// and worth about what it is estimated to be.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "server/evaluate/check_plan.h"
#include "server/evaluate/price_plan.h"
#include "server/search/refine/moves/neighbourhood.h"
#include "server/search/refine/perturbation.h"
#include "tests/support/refine_bed.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::RefineBed;

// Does not carry the move out: rules count what is allowed alone.
std::vector<Unit> UnitsAfter(const Solution& solution, int num_tables, const MoveList& list,
                             const Move& move) {
  const auto removed = list.removed(move);
  std::vector<Unit> units;
  for (int t = 0; t < num_tables; ++t) {
    for (const int id : solution.units_of_table(t)) {
      if (std::find(removed.begin(), removed.end(), id) == removed.end()) {
        units.push_back(solution.unit(id));
      }
    }
  }
  units.insert(units.end(), list.added(move).begin(), list.added(move).end());
  return units;
}

// Blocks of one table on hosts of different sizes are a plan, but a solution has none such: a table
// has one number of row shards there.
bool MixesHostSizes(const std::vector<Unit>& units) {
  return std::any_of(units.begin(), units.end(), [&](const Unit& a) {
    return a.spread() == Spread::kOneHost &&
           std::any_of(units.begin(), units.end(), [&](const Unit& b) {
             return b.table == a.table && b.shards.count != a.shards.count;
           });
  });
}

struct Seen {
  int moves = 0;
  int allowed = 0;
  double error_ms = 0;
  double value_ms = 0;
};

void CheckMoves(RefineBed& bed, MoveList& list, Seen& seen) {
  Solution& solution = bed.bench.solution;
  for (const Move& move : list.Sorted()) {
    ++seen.moves;
    ASSERT_GT(move.removed_count, 0);
    const std::vector<Unit> units =
        UnitsAfter(solution, static_cast<int>(bed.request.tables.size()), list, move);
    std::vector<std::int64_t> cols(bed.request.tables.size(), 0);
    for (const Unit& unit : units) cols[static_cast<std::size_t>(unit.table)] += unit.cols;
    for (std::size_t t = 0; t < cols.size(); ++t) {
      ASSERT_EQ(cols[t], bed.request.tables[t].embedding_dim);
    }
    const Plan plan = bed.PlanOf(units);
    const auto violations = CheckPlan(bed.request, plan);
    ASSERT_EQ(solution.Allows(list.removed(move), list.added(move)),
              violations.empty() && !MixesHostSizes(units))
        << (violations.empty() ? "" : violations[0].field + violations[0].description);
    if (!violations.empty() || MixesHostSizes(units)) continue;
    ++seen.allowed;
    const auto priced = bed.bench.pricer.Price(list, {&move, 1});
    NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost, PricePlan(bed.request, plan, bed.model));
    ASSERT_NEAR(priced[0].cost_ms, cost.embedding_cost_ms, 1e-4);
    // To first order: far above the present objective an estimate says no more than "dear".
    if (move.estimate_ms > 1.1 * bed.bench.pricer.objective().value_ms()) continue;
    seen.error_ms += std::abs(move.estimate_ms - priced[0].value_ms);
    seen.value_ms += priced[0].value_ms;
  }
}

// Those around every rank.
void CheckAllRanks(RefineBed& bed, Neighbourhood& moves, Seen& seen) {
  for (int source = 0; source < bed.num_ranks(); ++source) {
    MoveList list(20);
    moves.Collect(source, std::numeric_limits<double>::infinity(), list);
    ASSERT_NO_FATAL_FAILURE(CheckMoves(bed, list, seen));
  }
}

TEST(RankMovesTest, MovesAreCompleteLegalOrRefusedAndPricedAsTheirPlans) {
  Seen seen;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    RefineBed bed(seed);
    if (!bed.LoadLegal()) continue;
    const auto moves = MakeRankMoves(bed.bench);
    CheckAllRanks(bed, *moves, seen);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(seen.moves, 800);
  EXPECT_GT(seen.allowed, seen.moves / 2);
  EXPECT_LT(seen.error_ms, 0.1 * seen.value_ms);
}

TEST(TableMovesTest, MovesAreCompleteLegalOrRefusedAndPricedAsTheirPlans) {
  Seen seen;
  int relayouts = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    RefineBed bed(seed);
    if (!bed.LoadLegal()) continue;
    const auto moves = MakeTableMoves(bed.bench);
    Perturbation perturbation(bed.bench);
    CheckAllRanks(bed, *moves, seen);
    if (HasFatalFailure()) return;
    for (int i = 0; i < 5; ++i) {
      relayouts += perturbation.RandomRelayout(bed.random());
      const auto violations = CheckPlan(bed.request, bed.PlanOf(bed.bench.solution.Units()));
      ASSERT_TRUE(violations.empty()) << violations[0].field << violations[0].description;
      bed.bench.pricer.PriceSolution();
    }
  }
  EXPECT_GT(seen.moves, 1000);
  EXPECT_GT(seen.allowed, seen.moves / 3);
  EXPECT_LT(seen.error_ms, 0.1 * seen.value_ms);
  EXPECT_GT(relayouts, 20);
}

TEST(PartitionMovesTest, MovesAreCompleteLegalOrRefusedAndPricedAsTheirPlans) {
  Seen seen;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    RefineBed bed(seed);
    if (!bed.LoadLegal()) continue;
    const auto moves = MakePartitionMoves(bed.bench);
    CheckAllRanks(bed, *moves, seen);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(seen.moves, 200);
  EXPECT_GT(seen.allowed, 0.9 * seen.moves);
  EXPECT_LT(seen.error_ms, 0.1 * seen.value_ms);
}

}  // namespace
}  // namespace neuroshard
