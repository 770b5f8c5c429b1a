#include "server/evaluate/migration_report.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <limits>
#include <set>
#include <tuple>

#include "common/base/random.h"
#include "common/domain/resharding.h"
#include "server/evaluate/testing/lay_out_table.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum ShardingType;

constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();

// Tables of 10 rows and 16 fp16 columns on 4 ranks of 2 hosts.
class MigrationReportTest : public ::testing::Test {
 protected:
  MigrationReportTest() {
    for (const char* name : {"a", "b"}) {
      Table table;
      table.name = name;
      table.num_embeddings = 10;
      table.embedding_dim = 16;
      table.weight_dtype = DataType::kFp16;
      request_.tables.push_back(table);
    }
    request_.topology.devices = {{0, 1}, {0, 1}, {1, 1}, {1, 1}};
    request_.migration.emplace();
  }

  TablePlan On(int table, ShardingType type, std::vector<int> places, std::int64_t width = 16) {
    return LayOutTable(request_.tables[static_cast<std::size_t>(table)], type,
                       WidthBlocks(16, width), places, request_.topology.hosts());
  }
  Plan& previous() { return request_.migration->previous; }

  PlanRequest request_;
};

TEST_F(MigrationReportTest, WhatStaysDoesNotMove) {
  previous().tables = {On(0, kColumnWise, {1, 2}, 8), On(1, kDataParallel, {})};
  EXPECT_EQ(ReportMigration(request_, previous()), MigrationReport{});
}

TEST_F(MigrationReportTest, MovedIsWhatTheRankDidNotHold) {
  previous().tables = {On(0, kColumnWise, {1, 2}, 8), On(1, kTableWise, {3})};
  // Rank 1 gets the right half of a: 10 x 8 x 2 bytes.
  Plan plan;
  plan.tables = {On(0, kTableWise, {1}), On(1, kTableWise, {3})};
  EXPECT_EQ(ReportMigration(request_, plan), (MigrationReport{160, {{"a", 160}}}));
  // Rows 3 to 5 of the left half are on rank 1 already; rows 6 to 8 of the right half on rank 2.
  plan.tables = {On(0, kRowWise, {}), On(1, kRowWise, {})};
  EXPECT_THAT(
      ReportMigration(request_, plan).tables,
      ElementsAre(MovedTable{"a", 320 - 3 * 8 * 2 - 3 * 8 * 2}, MovedTable{"b", 320 - 1 * 16 * 2}));
}

TEST_F(MigrationReportTest, EachNewReplicaMoves) {
  previous().tables = {On(0, kTableWise, {2})};
  Plan plan;
  plan.tables = {On(0, kDataParallel, {})};
  EXPECT_EQ(ReportMigration(request_, plan).moved_bytes, 3 * 320);
}

TEST_F(MigrationReportTest, NewAndResizedTablesMoveNothing) {
  previous().tables = {On(0, kTableWise, {0})};
  previous().tables[0].shards[0].rows = 9;
  Plan plan;
  plan.tables = {On(0, kTableWise, {1}), On(1, kTableWise, {1})};
  EXPECT_EQ(ReportMigration(request_, plan), MigrationReport{});
  EXPECT_FALSE(PreviousPlacement(request_).Has(0));
  previous().tables[0].shards[0] = {0, 10, 0, 20, 0};
  EXPECT_EQ(ReportMigration(request_, plan), MigrationReport{});
}

TEST_F(MigrationReportTest, RanksThatAreGoneHoldNothing) {
  previous().tables = {On(0, kTableWise, {3})};
  previous().tables[0].shards[0].rank = 9;
  Plan plan;
  plan.tables = {On(0, kTableWise, {1})};
  EXPECT_EQ(ReportMigration(request_, plan).moved_bytes, 320);
}

TEST_F(MigrationReportTest, AnyValuesMayStandInEitherPlan) {
  previous().tables = {On(0, kTableWise, {0}), On(0, kTableWise, {1}), On(1, kTableWise, {2})};
  previous().tables[2].shards = {{0, 10, 0, 16, 2}, {0, 10, 8, 8, 2}, {kLast, 1, 0, 16, 2}};
  previous().tables.emplace_back().name = "stranger";
  Plan plan;
  plan.tables = {On(0, kTableWise, {0}), On(1, kTableWise, {0})};
  plan.tables[0].shards.push_back({0, kLast, kLast, kLast, -1});
  plan.tables[0].shards.push_back({-1, 10, 0, 16, 3});
  plan.tables.emplace_back().name = "stranger";
  EXPECT_EQ(ReportMigration(request_, plan), MigrationReport{});
}

TEST_F(MigrationReportTest, HugeTablesSaturate) {
  request_.tables[0].num_embeddings = std::int64_t{1} << 48;
  request_.tables[0].embedding_dim = 65536;
  const Shard all = {0, std::int64_t{1} << 48, 0, 65536, 0};
  previous().tables = {{"a", "", kTableWise, ComputeKernel::kFused, {all}}};
  Plan plan = previous();
  plan.tables[0].shards.assign(10, all);
  for (Shard& shard : plan.tables[0].shards) shard.rank = 1;
  EXPECT_EQ(ReportMigration(request_, plan).moved_bytes, std::int64_t{1} << 60);
}

TEST_F(MigrationReportTest, AgreesWithCountingCells) {
  Random random(5);
  const auto random_plan = [&](int table) {
    std::vector<int> places;
    for (int b = 0; b < 4; ++b) places.push_back(static_cast<int>(random.Below(2)));
    switch (random.Below(6)) {
      case 0:
        return On(table, kRowWise, {});
      case 1:
        return On(table, kDataParallel, {});
      case 2:
        return On(table, kGridShard, places, 4);
      case 3:
        return On(table, kRowWiseSubset, {0, 1, 3});
      case 4:
        return On(table, kColumnWise, places, 8);
      default:
        return On(table, kColumnWise, places, 4);
    }
  };
  const auto cells_of = [](const TablePlan& plan) {
    std::set<std::tuple<int, std::int64_t, std::int64_t>> cells;  // rank, row, column
    for (const Shard& shard : plan.shards) {
      for (std::int64_t row = 0; row < shard.rows; ++row) {
        for (std::int64_t col = 0; col < shard.cols; ++col) {
          cells.insert({shard.rank, shard.row_offset + row, shard.col_offset + col});
        }
      }
    }
    return cells;
  };
  for (Device& device : request_.topology.devices) device.memory_bytes = 1'000'000;
  request_.topology.host_memory_bytes = {1'000'000, 1'000'000};
  constexpr ComputeKernel kKernels[] = {ComputeKernel::kFused, ComputeKernel::kFusedUvm,
                                        ComputeKernel::kFusedUvmCaching};
  for (int i = 0; i < 300; ++i) {
    previous().tables = {random_plan(0)};
    Plan plan;
    plan.tables = {random_plan(0)};
    for (TablePlan* table : {&previous().tables[0], &plan.tables[0]}) {
      table->compute_kernel = kKernels[random.Below(3)];
      if (HasCache(table->compute_kernel)) table->cache_load_factor = 0.5;
    }
    auto before = cells_of(previous().tables[0]);
    const bool on_device = plan.tables[0].compute_kernel == ComputeKernel::kFused;
    if (on_device != (previous().tables[0].compute_kernel == ComputeKernel::kFused)) before.clear();
    std::int64_t moved = 0;
    for (const auto& cell : cells_of(plan.tables[0])) moved += before.count(cell) == 0 ? 2 : 0;
    ASSERT_EQ(ReportMigration(request_, plan).moved_bytes, moved);

    // The steps of the way there move as much.
    const auto resharding = Reshard(request_, plan);
    ASSERT_TRUE(resharding.ok()) << resharding.status();
    std::int64_t weights = 0;
    for (const ReshardingStep& step : resharding->steps) {
      for (const MadeShard& made : step.made) {
        for (const MovedPart& part : made.parts) weights += part.moves() ? part.weights_bytes : 0;
      }
    }
    ASSERT_EQ(weights, moved);
  }
}

}  // namespace
}  // namespace neuroshard
