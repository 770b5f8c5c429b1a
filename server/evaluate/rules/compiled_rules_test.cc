#include "server/evaluate/rules/compiled_rules.h"

#include <gmock/gmock.h>

#include <climits>

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum ShardingType;

// Four tables with 256, 64, 10 and 16 columns on hosts of 2, 2 and 1 ranks.
class CompiledRulesTest : public ::testing::Test {
 protected:
  CompiledRulesTest() {
    for (const std::int64_t dim : {256, 64, 10, 16}) {
      Table table;
      table.name = "t" + std::to_string(request_.tables.size());
      table.num_embeddings = 100;
      table.embedding_dim = dim;
      request_.tables.push_back(table);
    }
    for (const int host : {0, 0, 1, 1, 2}) request_.topology.devices.push_back({host, 1 << 20});
  }

  TableRule& Rule(std::vector<int> tables) {
    request_.constraints.tables.emplace_back();
    request_.constraints.tables.back().tables = std::move(tables);
    return request_.constraints.tables.back();
  }
  CompiledRules Compile() const { return CompiledRules(request_, TypeSet::All()); }
  TypeSet Types(int table = 0) const { return Compile().of(table).types; }
  std::vector<int> Ranks(int table = 0) const { return Compile().of(table).ranks->ranks(); }

  PlanRequest request_;
  Constraints& constraints_ = request_.constraints;
};

TEST_F(CompiledRulesTest, WithoutConstraintsEverythingIsAllowed) {
  const CompiledRules rules = Compile();
  EXPECT_EQ(rules.of(0).types, TypeSet::All());
  EXPECT_TRUE(rules.of(0).ranks->all());
  EXPECT_EQ(rules.of(0).ranks, rules.of(3).ranks);
  EXPECT_EQ(rules.of(0).max_shards, INT_MAX);
  EXPECT_EQ(rules.of(0).min_column_width, 1);
  EXPECT_EQ(rules.of(0).column_block, 0);
  EXPECT_EQ(rules.max_shards_per_rank(), INT_MAX);
  EXPECT_EQ(rules.host_of(3), 1);
}

TEST_F(CompiledRulesTest, RulesOnTypesComeBeforeTheRequestsAndTheDefaults) {
  EXPECT_EQ(CompiledRules(request_, {kTableWise}).of(0).types, TypeSet{kTableWise});
  constraints_.sharding_types = {kColumnWise};
  EXPECT_EQ(CompiledRules(request_, {kTableWise}).of(0).types, TypeSet{kColumnWise});
  Rule({0, 1}).sharding_types = {kRowWise, kGridShard};
  Rule({1}).sharding_types = {kRowWise, kTableWise};
  EXPECT_EQ(Types(0), (TypeSet{kRowWise, kGridShard}));
  EXPECT_EQ(Types(1), TypeSet{kRowWise});
  EXPECT_EQ(Types(2), TypeSet{kColumnWise});
}

TEST_F(CompiledRulesTest, DenseIsDataParallelAndFusedIsNot) {
  Rule({0}).compute_kernels = {ComputeKernel::kDense};
  Rule({1}).compute_kernels = {ComputeKernel::kFused};
  Rule({2}).compute_kernels = {ComputeKernel::kFused, ComputeKernel::kDense};
  EXPECT_EQ(Types(0), TypeSet{kDataParallel});
  EXPECT_FALSE(Types(1).contains(kDataParallel));
  EXPECT_EQ(Types(2), TypeSet::All());
}

// 100 rows on 5 ranks.
TEST_F(CompiledRulesTest, BucketsAreCutByRowWiseAloneAndOneARankAtLeast) {
  Rule({0, 1}).row_multiple = 10;
  Rule({1}).row_multiple = 4;
  Rule({2}).row_multiple = 50;
  const TypeSet whole_rows = {kTableWise, kColumnWise, kTableColumnWise, kDataParallel};
  TypeSet with_row_wise = whole_rows;
  with_row_wise.Add(kRowWise);
  EXPECT_EQ(Types(0), with_row_wise);
  EXPECT_EQ(Types(1), with_row_wise);
  EXPECT_EQ(Compile().row_cut(1).multiple, 20);
  EXPECT_EQ(Types(2), whole_rows);
  EXPECT_EQ(Types(3), TypeSet::All());
  EXPECT_EQ(Compile().row_cut(3), RowCut());
}

// 100 rows on ranks 0 to 4.
TEST_F(CompiledRulesTest, RowsInProportionAreCutByRowWiseAlone) {
  request_.topology.devices[4].memory_bytes = 3 << 20;
  request_.topology.devices[0].compute_speed = 6;
  Rule({0, 1, 3}).row_proportion = RowProportion::kMemory;
  Rule({2}).row_proportion = RowProportion::kSpeed;
  Rule({1}).row_multiple = 10;
  Rule({2, 3}).row_multiple = 50;
  const TypeSet whole_rows = {kTableWise, kColumnWise, kTableColumnWise, kDataParallel};
  TypeSet with_row_wise = whole_rows;
  with_row_wise.Add(kRowWise);
  const auto sizes = [&](int table) {
    std::vector<std::int64_t> rows;
    for (const Block& block : RowWiseBlocks(100, 5, Compile().row_cut(table))) {
      rows.push_back(block.size);
    }
    return rows;
  };
  EXPECT_EQ(Types(0), with_row_wise);
  EXPECT_THAT(sizes(0), ElementsAre(15, 14, 14, 14, 43));
  EXPECT_EQ(Types(1), with_row_wise);
  EXPECT_THAT(sizes(1), ElementsAre(20, 20, 10, 10, 40));
  EXPECT_THAT(sizes(2), ElementsAre(100, 0, 0, 0, 0));
  EXPECT_EQ(Types(2), whole_rows) << "two buckets for five ranks";
  EXPECT_EQ(Types(3), whole_rows);
  request_.memory.reserve_bytes = 1 << 19;  // leaves 1/2 MiB, of rank 4 5/2 MiB
  EXPECT_THAT(sizes(0), ElementsAre(11, 11, 11, 11, 56));
}

// Equal remainders go to the lower rank, whatever the speeds are counted in.
TEST_F(CompiledRulesTest, SpeedsOfOneProportionCutRowsAlike) {
  Rule({0}).row_proportion = RowProportion::kSpeed;
  const auto rows_at = [&](double fast, double slow) {
    for (std::size_t r = 0; r < 5; ++r) {
      request_.topology.devices[r].compute_speed = r < 2 ? fast : slow;
    }
    std::vector<std::int64_t> rows;
    for (const Block& block : RowWiseBlocks(1000, 5, Compile().row_cut(0))) {
      rows.push_back(block.size);
    }
    return rows;
  };
  EXPECT_EQ(rows_at(1, 0.6), rows_at(10, 6));
  EXPECT_EQ(rows_at(1, 0.7), rows_at(100, 70));
  EXPECT_THAT(rows_at(1, 0.6), ElementsAre(263, 263, 158, 158, 158));
}

TEST_F(CompiledRulesTest, OfTwoProportionsThereIsNone) {
  Rule({0, 1}).row_proportion = RowProportion::kMemory;
  Rule({0}).row_proportion = RowProportion::kMemory;
  Rule({1, 2}).row_proportion = RowProportion::kSpeed;
  EXPECT_TRUE(Types(0).contains(kRowWise));
  EXPECT_FALSE(Types(1).contains(kRowWise));
  EXPECT_TRUE(Types(2).contains(kRowWise));
  EXPECT_TRUE(Types(1).contains(kColumnWise));
}

TEST_F(CompiledRulesTest, RanksAreWhatAllRulesLeave) {
  Rule({0}).hosts = {0, 1};
  Rule({0, 1}).forbidden_ranks = {1};
  Rule({0}).ranks = {0, 1, 2, 4};
  Rule({1}).forbidden_hosts = {2};
  EXPECT_THAT(Ranks(0), ElementsAre(0, 2));
  EXPECT_THAT(Ranks(1), ElementsAre(0, 2, 3));
  Rule({0}).ranks = {3};
  EXPECT_THAT(Ranks(0), IsEmpty());
  EXPECT_TRUE(Types(0).empty());
}

TEST_F(CompiledRulesTest, TypesThatTakeEveryRankNeedEveryRank) {
  Rule({0}).forbidden_ranks = {4};
  Rule({1}).ranks = {0, 2};
  Rule({2}).ranks = {4};
  EXPECT_EQ(Types(0), (TypeSet{kTableWise, kColumnWise, kTableRowWise, kTableColumnWise, kGridShard,
                               kRowWiseSubset}));
  EXPECT_EQ(Types(1), (TypeSet{kTableWise, kColumnWise, kTableColumnWise, kRowWiseSubset}));
  // Host 2 has rank 4 alone, so rows in one block may stay there.
  EXPECT_EQ(Types(2),
            (TypeSet{kTableWise, kColumnWise, kTableRowWise, kTableColumnWise, kGridShard}));
}

TEST_F(CompiledRulesTest, ShardsAreCountedAsPlansListThem) {
  constraints_.max_shards_per_table = 4;
  Rule({1}).max_shards = 1;
  EXPECT_FALSE(Types(0).contains(kRowWise));
  EXPECT_FALSE(Types(0).contains(kDataParallel));
  EXPECT_TRUE(Types(0).contains(kGridShard));
  EXPECT_EQ(Types(1),
            (TypeSet{kTableWise, kColumnWise, kTableRowWise, kTableColumnWise, kGridShard}));
  EXPECT_EQ(Compile().of(1).max_shards, 1);
}

TEST_F(CompiledRulesTest, CoLocatedTablesShareRanks) {
  constraints_.colocate = {{{0, 1}, GroupLevel::kRank}, {{1, 2}, GroupLevel::kRank}};
  Rule({0}).ranks = {0, 1, 2};
  Rule({2}).ranks = {1, 2, 3};
  const CompiledRules rules = Compile();
  EXPECT_THAT(rules.rank_groups(), ElementsAre(ElementsAre(0, 1, 2)));
  for (const int table : {0, 1, 2}) {
    EXPECT_THAT(rules.of(table).ranks->ranks(), ElementsAre(1, 2));
    EXPECT_EQ(rules.of(table).types, (TypeSet{kTableWise, kColumnWise, kTableColumnWise}));
  }
  EXPECT_EQ(rules.of(3).rank_group, -1);
}

TEST_F(CompiledRulesTest, CoLocatedOnAHostTheyShareHosts) {
  constraints_.colocate = {{{0, 1}, GroupLevel::kHost}, {{1, 2}, GroupLevel::kRank}};
  Rule({0}).ranks = {0, 1, 4};
  Rule({2}).forbidden_ranks = {4};
  const CompiledRules rules = Compile();
  EXPECT_THAT(rules.host_groups(), ElementsAre(ElementsAre(0, 1, 2)));
  for (const int table : {0, 1, 2}) {
    EXPECT_THAT(rules.of(table).ranks->ranks(), ElementsAre(0, 1));
  }
  EXPECT_EQ(rules.of(0).types, (TypeSet{kTableWise, kColumnWise, kTableRowWise, kTableColumnWise,
                                        kGridShard, kRowWiseSubset}));
}

TEST_F(CompiledRulesTest, SeparateTablesLeaveEachOtherRoom) {
  constraints_.separate = {{{1, 3}, GroupLevel::kHost}};
  EXPECT_FALSE(Types(1).contains(kRowWise));
  EXPECT_FALSE(Types(3).contains(kDataParallel));
  EXPECT_TRUE(Types(1).contains(kGridShard));
  EXPECT_THAT(Compile().of(3).separate_groups, ElementsAre(0));
}

TEST_F(CompiledRulesTest, ColumnsHaveALeastWidth) {
  constraints_.min_column_width = 20;
  Rule({0}).min_column_width = 32;
  EXPECT_EQ(Compile().of(0).min_column_width, 32);
  EXPECT_EQ(Compile().of(1).min_column_width, 20);
  EXPECT_EQ(Compile().of(2).min_column_width, 10);
}

TEST_F(CompiledRulesTest, UnpooledTablesOfACollectionHaveOneBlockWidth) {
  for (Table& table : request_.tables) table.embedding_dim = 256;
  for (const int t : {0, 1, 2}) {
    request_.tables[static_cast<std::size_t>(t)].kind = TableKind::kEmbedding;
  }
  request_.tables[2].module = "other";
  EXPECT_EQ(Types(0), (TypeSet{kTableWise, kColumnWise, kRowWise}));
  EXPECT_EQ(Types(3), TypeSet::All());
  EXPECT_EQ(Compile().of(0).column_block, 128);
  EXPECT_EQ(Compile().of(3).column_block, 0);
  Rule({0}).min_column_width = 16;
  Rule({3}).min_column_width = 64;
  EXPECT_EQ(Compile().of(0).column_block, 16);
  EXPECT_EQ(Compile().of(1).column_block, 16);
  EXPECT_EQ(Compile().of(2).column_block, 128);
  constraints_.min_column_width = 20;
  EXPECT_EQ(Compile().of(0).column_block, 32);
  EXPECT_EQ(Compile().of(2).column_block, 32);
}

TEST_F(CompiledRulesTest, TorchRecsRuleHasOneBlockWidth) {
  constraints_.column_rule = ColumnRule::kTorchRec;
  Rule({1}).min_column_width = 16;
  Rule({3}).min_column_width = 4;
  EXPECT_EQ(Compile().of(0).column_block, 128);
  EXPECT_EQ(Compile().of(1).column_block, 16);
  EXPECT_EQ(Compile().of(2).column_block, 10);
  TableRule& rule = Rule({1, 3});
  rule.distinct_ranks = true;
  rule.hosts = {0, 2};
  // Four blocks do not fit on three ranks.
  EXPECT_EQ(Types(1), (TypeSet{kTableWise, kTableRowWise, kRowWiseSubset}));
  Rule({3}).hosts = {0};
  EXPECT_FALSE(Types(3).contains(kColumnWise));
}

TEST_F(CompiledRulesTest, MemoriesSlowerThanTheSlowestAreAsIfThereWereNone) {
  request_.topology.host_memory_bytes = {1 << 20, 1 << 20, 1 << 20};
  request_.topology.ssd_bytes = {1 << 20, 1 << 20, 1 << 20};
  Rule({0}).compute_kernels = {ComputeKernel::kKeyValue, ComputeKernel::kFusedUvm};
  const auto residencies = [&](MemoryTier slowest) {
    const CompiledRules rules(request_, TypeSet::All(), slowest);
    EXPECT_EQ(rules.slowest_tier(), slowest);
    return *rules.of(0).residencies;
  };
  EXPECT_GT(residencies(MemoryTier::kSsd).size(), 1U);
  EXPECT_EQ(residencies(MemoryTier::kHost).size(), 1U);
  EXPECT_THAT(residencies(MemoryTier::kDevice), ElementsAre(0));  // in which no type is left
}

}  // namespace
}  // namespace neuroshard
