#include "server/search/core/table_layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "tests/support/refine_bed.h"

namespace neuroshard {
namespace {

TEST(TableLayoutsTest, EveryLayoutKeepsTheRulesOnItsTable) {
  int layouts = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    testing::RefineBed bed(seed);
    for (int t = 0; t < static_cast<int>(bed.request.tables.size()); ++t) {
      const TableRules& rules = bed.rules.of(t);
      const std::vector<TableLayout> all = bed.layouts.Of(t);
      for (std::size_t i = 0; i < all.size(); ++i) {
        const TableLayout& layout = all[i];
        EXPECT_EQ(std::find(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i), layout),
                  all.begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_TRUE(rules.types.contains(layout.type)) << ToText(layout.type);
        const auto widths = bed.layouts.Widths(t, layout.blocks);
        ASSERT_EQ(std::ssize(widths), layout.blocks);
        EXPECT_EQ(std::accumulate(widths.begin(), widths.end(), std::int64_t{0}),
                  bed.request.tables[static_cast<std::size_t>(t)].embedding_dim);
        std::int64_t offset = 0;
        for (const std::int64_t cols : widths) {
          EXPECT_EQ(offset % kColumnAlignment, 0);
          offset += cols;
          if (layout.blocks > 1) {
            EXPECT_TRUE(bed.layouts.AllowsWidth(t, cols));
            EXPECT_TRUE(rules.column_block == 0 || cols <= rules.column_block);
          }
          const UnitShards shards = bed.layouts.Shards(bed.bench.shard_table, t, layout, cols);
          EXPECT_LE(shards.count, bed.num_ranks());
          EXPECT_TRUE(SpreadOf(layout.type) != Spread::kSubset || shards.count == layout.holders);
        }
        if (SpreadOf(layout.type) == Spread::kRank) {
          EXPECT_EQ(bed.layouts.OnRanks(t, layout.blocks), layout.type);
          EXPECT_LE(layout.blocks, rules.max_shards);
        }
        if (SpreadOf(layout.type) == Spread::kOneHost) {
          EXPECT_EQ(bed.layouts.OnHosts(t, layout.blocks), layout.type);
        }
        ++layouts;
      }
      // Of few blocks all that are wide enough are there.
      const int most = std::min({8, rules.max_shards, bed.num_ranks()});
      for (int blocks = 2; rules.column_block == 0 && blocks <= most; ++blocks) {
        const std::optional<ShardingType> type = bed.layouts.OnRanks(t, blocks);
        const auto widths = bed.layouts.Widths(t, blocks);
        const bool wide = std::all_of(widths.begin(), widths.end(), [&](std::int64_t cols) {
          return cols > 0 && bed.layouts.AllowsWidth(t, cols);
        });
        if (!type) continue;
        EXPECT_EQ(std::find(all.begin(), all.end(), TableLayout{*type, blocks, 1}) != all.end(),
                  wide);
      }
    }
  }
  EXPECT_GT(layouts, 2000);
}

}  // namespace
}  // namespace neuroshard
