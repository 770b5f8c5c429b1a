#include "server/evaluate/rules/demands.h"

#include <gmock/gmock.h>

#include <numeric>

#include "server/evaluate/rules/compiled_rules.h"
#include "tests/support/random_constraints.h"
#include "tests/support/random_plan_request.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;

std::vector<std::size_t> AllOf(const Demands& demands) {
  std::vector<std::size_t> all(demands.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

// All demands together demand what the request does, and none demands nothing.
TEST(DemandsTest, AllDemandsAreTheRequest) {
  Random random(8);
  for (int i = 0; i < 300; ++i) {
    PlanRequest request = testing::RandomPlanRequest(random);
    testing::AddRandomConstraints(random, request, 3);
    const TypeSet defaults = {ShardingType::kTableWise, ShardingType::kRowWise};
    const Demands demands(request, defaults);
    const PlanRequest same = demands.With(AllOf(demands));
    const CompiledRules expected(request, defaults);
    const CompiledRules rules(same, TypeSet::All());
    for (int t = 0; t < static_cast<int>(request.tables.size()); ++t) {
      EXPECT_EQ(rules.of(t).types, expected.of(t).types);
      EXPECT_EQ(rules.of(t).ranks->ranks(), expected.of(t).ranks->ranks());
      EXPECT_EQ(rules.of(t).max_shards, expected.of(t).max_shards);
      EXPECT_EQ(rules.of(t).min_column_width, expected.of(t).min_column_width);
      EXPECT_EQ(rules.of(t).column_block, expected.of(t).column_block);
      EXPECT_EQ(rules.of(t).distinct_ranks, expected.of(t).distinct_ranks);
    }
    EXPECT_EQ(rules.rank_groups(), expected.rank_groups());
    EXPECT_EQ(rules.host_groups(), expected.host_groups());
    EXPECT_EQ(rules.max_shards_per_rank(), expected.max_shards_per_rank());
    EXPECT_EQ(rules.max_tables_per_rank(), expected.max_tables_per_rank());
    EXPECT_EQ(same.topology, request.topology);
    EXPECT_EQ(same.memory, request.memory);

    const PlanRequest free = demands.With({});
    EXPECT_TRUE(free.constraints.empty());
    EXPECT_FALSE(free.migration.has_value());
  }
}

// Whether memory is a demand or not.
TEST(DemandsTest, BlocksInProportionToMemoryStayAsTheyAre) {
  PlanRequest request;
  request.tables.resize(1);
  request.tables[0].num_embeddings = 90;
  request.topology.devices = {{0, 100}, {0, 150}};
  request.memory.reserve_bytes = 50;
  request.constraints.tables.resize(1);
  request.constraints.tables[0].tables = {0};
  request.constraints.tables[0].row_proportion = RowProportion::kMemory;
  const Demands demands(request, TypeSet::All());
  ASSERT_EQ(demands.Path(0), "constraints.tables[0].row_proportion");
  EXPECT_EQ(demands.Text(0), "rows in proportion to memory for ''");
  for (const std::vector<std::size_t>& kept : {AllOf(demands), std::vector<std::size_t>{0}}) {
    const PlanRequest with = demands.With(kept);
    const CompiledRules rules(with, TypeSet::All());
    EXPECT_EQ(RowWiseBlocks(90, 2, rules.row_cut(0)).front().size, 30);
  }
}

TEST(DemandsTest, OnlyWhatConcernsTheTables) {
  PlanRequest request;
  request.tables.resize(3);
  for (std::size_t t = 0; t < 3; ++t) request.tables[t].name = std::string(1, char('a' + t));
  request.topology.devices = {{0, 1}, {0, 1}};
  request.constraints.tables.resize(2);
  request.constraints.tables[0].tables = {0};
  request.constraints.tables[0].ranks = {1};
  request.constraints.tables[1].tables = {0, 2};
  request.constraints.tables[1].max_shards = 3;
  request.constraints.colocate = {{{0, 1}, GroupLevel::kRank}, {{1, 2}, GroupLevel::kHost}};
  const Demands demands(request, TypeSet::All(), {1, 2});
  std::vector<std::string> texts;
  for (std::size_t f = 0; f < demands.size(); ++f)
    texts.push_back(demands.Path(f) + ": " + demands.Text(f));
  EXPECT_THAT(texts, ElementsAre("constraints.tables[1].max_shards: at most 3 shards for 'a', 'c'",
                                 "constraints.colocate[0]: 'a', 'b' on one rank",
                                 "constraints.colocate[1]: 'b', 'c' on one host",
                                 "topology: 2 B for shards on 2 ranks"));
  const PlanRequest with = demands.With(AllOf(demands));
  EXPECT_EQ(with.tables.size(), 2U);
  ASSERT_EQ(with.constraints.tables.size(), 1U);
  EXPECT_THAT(with.constraints.tables[0].tables, ElementsAre(1));
  EXPECT_THAT(with.constraints.colocate[0].tables, ElementsAre(0));
  EXPECT_THAT(with.constraints.colocate[1].tables, ElementsAre(0, 1));
}

TEST(MinimalSetTest, FindsAMinimalSetInFewQuestions) {
  Random random(4);
  for (int i = 0; i < 200; ++i) {
    const std::size_t count = 1000;
    std::vector<std::size_t> needed;
    for (int k = 0; k < 3; ++k) needed.push_back(random.Below(count));
    std::sort(needed.begin(), needed.end());
    needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
    int questions = 0;
    EXPECT_EQ(MinimalSet(count,
                         [&](const std::vector<std::size_t>& kept) {
                           ++questions;
                           return std::includes(kept.begin(), kept.end(), needed.begin(),
                                                needed.end());
                         }),
              needed);
    EXPECT_LT(questions, 100);
  }
}

}  // namespace
}  // namespace neuroshard
