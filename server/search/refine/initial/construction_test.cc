#include "server/search/refine/initial/construction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "server/evaluate/check_plan.h"
#include "tests/support/refine_bed.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::RefineBed;

TEST(ConstructionTest, BuildsLegalSolutionsOrNamesTheTableWithoutAPlace) {
  int built = 0;
  int failed = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    RefineBed bed(seed);
    Solution& solution = bed.bench.solution;
    Construction construction(bed.bench);
    const auto all =
        construction.AllLayouts(Construction::Residencies(bed.request.tables.size(), {0}));
    Construction::Choice choice;
    for (const auto& of_table : all) {
      if (of_table.empty()) break;
      choice.push_back(of_table[bed.random().Below(of_table.size())]);
    }
    if (choice.size() < all.size()) continue;
    const auto order = std::array{Construction::Order::kByPrice, Construction::Order::kByPeak,
                                  Construction::Order::kByBytes}[bed.random().Below(3)];
    const int table = construction.Build(choice, order, std::vector<int>(all.size(), 0));
    if (table >= 0) {
      ++failed;
      ASSERT_LT(table, static_cast<int>(all.size()));
      continue;
    }
    ++built;
    for (const Unit& unit : solution.Units()) {
      EXPECT_EQ(unit.type, choice[static_cast<std::size_t>(unit.table)].layout.type);
    }
    for (const Violation& violation : CheckPlan(bed.request, bed.PlanOf(solution.Units()))) {
      ADD_FAILURE() << seed << " " << violation.field << ": " << violation.description;
    }
  }
  EXPECT_GT(built, 40);
  EXPECT_GT(failed, 5);
}

TEST(ConstructionTest, LayoutsArePricedAsTheirShards) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    RefineBed bed(seed);
    Construction construction(bed.bench);
    const auto all =
        construction.AllLayouts(Construction::Residencies(bed.request.tables.size(), {0}));
    const auto first =
        construction.FirstLayouts(Construction::Residencies(bed.request.tables.size(), {0}));
    ASSERT_EQ(all.size(), bed.request.tables.size());
    for (std::size_t t = 0; t < all.size(); ++t) {
      const auto layouts = bed.layouts.Of(static_cast<int>(t));
      ASSERT_EQ(all[t].size(), layouts.size());
      ASSERT_EQ(first[t].size(), std::min<std::size_t>(layouts.size(), 1));
      for (std::size_t l = 0; l < layouts.size(); ++l) {
        const PricedLayout& priced = all[t][l];
        EXPECT_EQ(priced.layout, layouts[l]);
        EXPECT_GT(priced.peak_ms, 0);
        EXPECT_LE(priced.peak_ms, priced.price_ms + 1e-9);
        for (const auto& [tier, name] : kWords<MemoryTier>) {
          EXPECT_LE(priced.peak_bytes[tier], priced.bytes[tier]) << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace neuroshard
