#include "server/search/refine/perturbation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "server/evaluate/check_plan.h"
#include "tests/support/refine_bed.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::RefineBed;

// A bed, and what changes its solution at random.
struct Bed : RefineBed {
  explicit Bed(std::uint64_t seed) : RefineBed(seed), perturbation(bench) {}

  void Load(const std::vector<Unit>& units) {
    bench.solution.Clear();
    for (const Unit& unit : units) bench.solution.Add(unit);
    bench.pricer.PriceSolution();
  }
  int RandomRank() {
    return static_cast<int>(random().Below(static_cast<std::uint64_t>(num_ranks())));
  }
  void ExpectLegal() {
    for (const Violation& v : CheckPlan(request, PlanOf(bench.solution.Units()))) {
      ADD_FAILURE() << v.field << ": " << v.description;
    }
  }

  Perturbation perturbation;
};

// How a table is cut, and where what is cut lies where `with_places`.
using Cut = std::tuple<ShardingType, std::int64_t, int, int>;
std::vector<Cut> CutOf(const std::vector<Unit>& units, int table, bool with_places) {
  std::vector<Cut> cut;
  for (const Unit& unit : units) {
    if (unit.table != table) continue;
    const bool has_place = with_places || unit.spread() != Spread::kRank;
    cut.emplace_back(unit.type, unit.cols, unit.residency, has_place ? unit.place : -1);
  }
  std::sort(cut.begin(), cut.end());
  return cut;
}

TEST(PerturbationTest, LeavesALegalSolution) {
  int changed = 0;
  int complete = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Bed bed(seed);
    if (!bed.LoadLegal()) continue;
    for (int i = 0; i < 10; ++i) {
      const std::vector<Unit> before = bed.bench.solution.Units();
      bed.perturbation.MoveAtRandom(bed.random());
      const std::vector<Unit> other = bed.bench.solution.Units();
      bed.ExpectLegal();
      bed.Load(other);
      const bool ruined = bed.perturbation.RuinRanks(bed.RandomRank(), bed.random());
      if (ruined) bed.ExpectLegal();
      const bool crossed = bed.perturbation.Cross(before, other, bed.random());
      if (crossed) bed.ExpectLegal();
      complete += ruined + crossed;
      if (!crossed) bed.Load(other);
      changed += bed.PlanOf(bed.bench.solution.Units()) != bed.PlanOf(before);
      bed.bench.pricer.PriceSolution();
    }
  }
  EXPECT_GT(complete, 500);
  EXPECT_GT(changed, 100);
}

TEST(PerturbationTest, RuinedRanksKeepCutsAndTheRestStays) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Bed bed(seed);
    if (!bed.LoadLegal()) continue;
    const std::vector<Unit> before = bed.bench.solution.Units();
    if (!bed.perturbation.RuinRanks(bed.RandomRank(), bed.random())) continue;
    const std::vector<Unit> after = bed.bench.solution.Units();
    for (int t = 0; t < std::ssize(bed.request.tables); ++t) {
      EXPECT_EQ(CutOf(after, t, false), CutOf(before, t, false)) << t;
    }
    int touched = 0;
    for (int r = 0; r < bed.num_ranks(); ++r) {
      const auto on_rank = [&](const std::vector<Unit>& units) {
        std::vector<std::pair<int, std::int64_t>> on;
        for (const Unit& unit : units) {
          if (unit.spread() == Spread::kRank && unit.place == r) {
            on.emplace_back(unit.table, unit.cols);
          }
        }
        std::sort(on.begin(), on.end());
        return on;
      };
      touched += on_rank(after) != on_rank(before);
    }
    EXPECT_LE(touched, 3);
  }
}

TEST(PerturbationTest, ACrossoverHasEachTableFromOneOfTheTwo) {
  int from_both = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Bed bed(seed);
    if (!bed.LoadLegal()) continue;
    const std::vector<Unit> first = bed.bench.solution.Units();
    for (int i = 0; i < 10; ++i) bed.perturbation.MoveAtRandom(bed.random());
    const std::vector<Unit> second = bed.bench.solution.Units();
    if (!bed.perturbation.Cross(first, second, bed.random())) continue;
    const std::vector<Unit> child = bed.bench.solution.Units();
    bool has_first = false;
    bool has_second = false;
    for (int t = 0; t < std::ssize(bed.request.tables); ++t) {
      const bool is_first = CutOf(child, t, true) == CutOf(first, t, true);
      const bool is_second = CutOf(child, t, false) == CutOf(second, t, false);
      EXPECT_TRUE(is_first || is_second) << t;
      has_first = has_first || !is_second;
      has_second = has_second || !is_first;
    }
    from_both += has_first && has_second;
  }
  EXPECT_GT(from_both, 10);
}

TEST(PerturbationTest, FixedTablesStay) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Bed bed(seed);
    if (!bed.LoadLegal()) continue;
    const std::vector<Unit> before = bed.bench.solution.Units();
    const Plan plan = bed.PlanOf(before);
    FixedTables fixed;
    fixed.assign(bed.request.tables.size(), nullptr);
    fixed[0] = &plan.tables[0];
    bed.bench.Fix(fixed);
    bed.Load(before);
    for (int rank = 0; rank < bed.num_ranks(); ++rank) {
      if (bed.perturbation.RuinRanks(rank, bed.random())) {
        EXPECT_EQ(CutOf(bed.bench.solution.Units(), 0, true), CutOf(before, 0, true));
      }
      if (bed.perturbation.Cross(before, before, bed.random())) {
        EXPECT_EQ(CutOf(bed.bench.solution.Units(), 0, true), CutOf(before, 0, true));
      }
      bed.Load(before);
    }
  }
}

}  // namespace
}  // namespace neuroshard
