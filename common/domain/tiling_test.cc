#include "common/domain/tiling.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "common/base/random.h"
#include "common/domain/shard_layout.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum ShardingType;

std::vector<std::string> FaultsOf(ShardingType type, std::vector<Shard> shards, int ranks = 0) {
  Violations violations;
  CheckTiling({"t", "", type, ComputeKernel::kFused, std::move(shards)}, ranks, "p", violations);
  std::vector<std::string> fields;
  for (const Violation& violation : violations.kept()) fields.push_back(violation.field);
  return fields;
}

TEST(TilingTest, LayoutsOfEveryTypeAreTilings) {
  const std::vector<Shard> columns = {{0, 9, 0, 8, 3}, {0, 9, 8, 5, 3}};
  const std::vector<Shard> rows = {{0, 4, 0, 8, 0}, {4, 5, 0, 8, 1}, {9, 0, 0, 8, 2}};
  EXPECT_THAT(FaultsOf(kTableWise, {{0, 9, 0, 8, 7}}, 2), IsEmpty());
  EXPECT_THAT(FaultsOf(kColumnWise, columns, 2), IsEmpty());
  EXPECT_THAT(FaultsOf(kTableColumnWise, columns), IsEmpty());
  EXPECT_THAT(FaultsOf(kRowWise, rows, 3), IsEmpty());
  EXPECT_THAT(FaultsOf(kTableRowWise, rows, 9), IsEmpty());
  EXPECT_THAT(FaultsOf(kRowWiseSubset, rows, 9), IsEmpty());
  EXPECT_THAT(FaultsOf(kDataParallel, {{0, 9, 0, 8, 0}, {0, 9, 0, 8, 1}}, 2), IsEmpty());
  std::vector<Shard> grid = rows;
  for (Shard shard : rows) {
    shard.col_offset = 8;
    grid.push_back(shard);
  }
  EXPECT_THAT(FaultsOf(kGridShard, grid), IsEmpty());
}

TEST(TilingTest, FaultsHaveTheirPlace) {
  EXPECT_THAT(FaultsOf(kTableWise, {}), ElementsAre("p.shards"));
  EXPECT_THAT(FaultsOf(kTableWise, {{0, 0, 0, 8, 0}}), ElementsAre("p.shards[0].rows"));
  EXPECT_THAT(FaultsOf(kRowWise, {{0, 9, 0, 0, 0}}), ElementsAre("p.shards[0].cols"));
  // Begins late.
  EXPECT_THAT(FaultsOf(kTableWise, {{0, 9, 4, 8, 0}}), ElementsAre("p.shards"));
  EXPECT_THAT(FaultsOf(kTableWise, {{1, 8, 0, 8, 0}}), ElementsAre("p.shards[0].rows"));
  // A gap and an overlap.
  EXPECT_THAT(FaultsOf(kColumnWise, {{0, 9, 0, 16, 0}, {0, 9, 12, 4, 1}, {0, 9, 20, 4, 2}}),
              ElementsAre("p.shards[1].col_offset", "p.shards"));
  EXPECT_THAT(FaultsOf(kRowWiseSubset, {{0, 4, 0, 8, 0}, {3, 2, 0, 8, 1}, {6, 1, 0, 8, 2}}),
              ElementsAre("p.shards[1].row_offset", "p.shards"));
  // What the type does not have.
  EXPECT_THAT(FaultsOf(kTableWise, {{0, 9, 0, 4, 0}, {0, 9, 4, 4, 1}}), ElementsAre("p.shards"));
  EXPECT_THAT(FaultsOf(kColumnWise, {{0, 9, 0, 4, 0}, {0, 5, 4, 4, 1}}),
              ElementsAre("p.shards[1].rows"));
  EXPECT_THAT(FaultsOf(kRowWise, {{0, 9, 0, 8, 0}}, 4), ElementsAre("p.shards"));
  EXPECT_THAT(FaultsOf(kRowWise, {{0, 9, 0, 8, 0}}), IsEmpty()) << "of a plan of unknown ranks";
  EXPECT_THAT(FaultsOf(kRowWiseSubset, {{0, 9, 0, 8, 0}}), ElementsAre("p.shards"));
  // One rank for two shards of the same columns.
  EXPECT_THAT(FaultsOf(kDataParallel, {{0, 9, 0, 8, 1}, {0, 9, 0, 8, 1}}),
              ElementsAre("p.shards[1].rank"));
}

// Cuts of a table, some with a shard changed or without the last: a layout is one where each cell is
// in one shard.
TEST(TilingTest, AgreesWithCountingCells) {
  Random random(3);
  int legal = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Shard> shards;
    int rank = 0;
    const std::int64_t width = random.Between(2, 6);
    for (const Block& column : WidthBlocks(6, width)) {
      for (const Block& row : CeilBlocks(5, static_cast<int>(random.Between(1, 3)))) {
        shards.push_back({row.offset, row.size, column.offset, column.size, rank++});
      }
    }
    if (random.Below(2) == 0) {
      Shard& changed = shards[random.Below(shards.size())];
      (random.Below(2) == 0 ? changed.row_offset : changed.col_offset) += random.Between(0, 1);
      (random.Below(2) == 0 ? changed.rows : changed.cols) += random.Between(-1, 1);
    }
    if (random.Below(4) == 0) shards.erase(shards.begin() + static_cast<long>(shards.size()) - 1);
    std::int64_t rows = 0, cols = 0;
    for (const Shard& shard : shards) {
      rows = std::max(rows, shard.row_offset + shard.rows);
      cols = std::max(cols, shard.col_offset + shard.cols);
    }
    bool once = !shards.empty();
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t col = 0; col < cols; ++col) {
        const auto holders = std::count_if(shards.begin(), shards.end(), [&](const Shard& shard) {
          return row >= shard.row_offset && row < shard.row_offset + shard.rows &&
                 col >= shard.col_offset && col < shard.col_offset + shard.cols;
        });
        once = once && holders == 1;
      }
    }
    for (const Shard& shard : shards) once = once && shard.cols > 0;
    // Shards that begin at the same column are a block, and as wide as each other.
    std::map<std::int64_t, std::set<std::int64_t>> widths;
    for (const Shard& shard : shards) widths[shard.col_offset].insert(shard.cols);
    for (const auto& [start, of_block] : widths) once = once && of_block.size() == 1;
    ASSERT_EQ(FaultsOf(kGridShard, shards).empty(), once) << round;
    legal += once ? 1 : 0;
  }
  EXPECT_GT(legal, 500);
  EXPECT_LT(legal, 2500);
}

}  // namespace
}  // namespace neuroshard
