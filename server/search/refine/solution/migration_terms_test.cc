#include "server/search/refine/solution/migration_terms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "server/evaluate/migration_report.h"
#include "server/search/refine/perturbation.h"
#include "tests/support/refine_bed.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::RefineBed;

constexpr double kGib = 1 << 30;

// A unit of one rank goes to another one, if the solution allows it.
bool MoveOne(RefineBed& bed) {
  Solution& solution = bed.bench.solution;
  const auto draw = [&](int count) {
    return static_cast<int>(bed.random().Below(static_cast<std::uint64_t>(count)));
  };
  const auto units = solution.units_on_rank(draw(bed.num_ranks()));
  if (units.empty()) return false;
  const int id = units[static_cast<std::size_t>(draw(static_cast<int>(units.size())))];
  Unit unit = solution.unit(id);
  unit.place = draw(bed.num_ranks());
  if (!solution.Allows({&id, 1}, {&unit, 1})) return false;
  solution.Remove(id);
  solution.Add(unit);
  return true;
}

// The last of a table's columns first, on the same ranks.
Plan Reversed(Plan plan) {
  for (TablePlan& table : plan.tables) {
    const auto is_ragged = [](const Shard& shard) { return shard.cols % kColumnAlignment != 0; };
    if (SpreadOf(table.sharding_type) != Spread::kRank ||
        std::any_of(table.shards.begin(), table.shards.end(), is_ragged)) {
      continue;
    }
    std::reverse(table.shards.begin(), table.shards.end());
    std::int64_t offset = 0;
    for (Shard& shard : table.shards) {
      shard.col_offset = offset;
      offset += shard.cols;
    }
  }
  return plan;
}

std::int64_t MovedBytes(const RefineBed& bed) {
  return ReportMigration(bed.request, bed.PlanOf(bed.bench.solution.Units())).moved_bytes;
}

TEST(MigrationTermsTest, WhatMovesIsCountedAsThePlanHasIt) {
  int compared = 0, equal = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    RefineBed bed(seed);
    if (!bed.LoadLegal()) continue;
    Solution& solution = bed.bench.solution;
    const Plan previous = Reversed(bed.PlanOf(solution.Units()));
    bed.request.migration.emplace().previous = previous;
    bed.request.migration->price_ms_per_gib = kGib;
    bed.bench.CountMoves();
    bed.bench.Load(previous);
    EXPECT_EQ(solution.MovesMs(), 0) << seed;
    EXPECT_EQ(MovedBytes(bed), 0) << seed;
    Perturbation perturbation(bed.bench);
    for (int i = 0; i < 8; ++i) {
      if (i % 2 == 0 ? !MoveOne(bed) : !perturbation.RandomRelayout(bed.random())) {
        continue;
      }
      bed.bench.pricer.PriceSolution();
      const std::int64_t counted = std::llround(solution.MovesMs());
      const std::int64_t moved = MovedBytes(bed);
      EXPECT_LE(counted, moved) << seed;
      ++compared;
      equal += counted == moved ? 1 : 0;
    }
    // The cost has it.
    const double before_ms = bed.bench.pricer.objective().cost_ms();
    bed.request.migration->price_ms_per_gib = 0;
    bed.bench.pricer.PriceSolution();
    const double without_ms = bed.bench.pricer.objective().cost_ms();
    bed.request.migration->price_ms_per_gib = kGib;
    bed.bench.pricer.PriceSolution();
    EXPECT_NEAR(bed.bench.pricer.objective().cost_ms(), without_ms + solution.MovesMs(),
                1e-9 * (1 + solution.MovesMs()));
    EXPECT_GE(before_ms, 0);
  }
  EXPECT_GT(compared, 150);
  EXPECT_GT(equal, 0.9 * compared);
}

TEST(MigrationTermsTest, NoMoreMovesThanTheBudgetHasBytesFor) {
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    RefineBed bed(seed);
    if (!bed.LoadLegal()) continue;
    Solution& solution = bed.bench.solution;
    bed.request.migration.emplace().previous = bed.PlanOf(solution.Units());
    bed.request.migration->budget_bytes = 100'000;
    bed.request.migration->price_ms_per_gib = kGib;
    bed.bench.CountMoves();
    bed.bench.Load(bed.request.migration->previous);
    for (int i = 0; i < 20; ++i) {
      if (!MoveOne(bed)) ++refused;
      EXPECT_LE(solution.MovesMs(), 100'000) << seed;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace neuroshard
