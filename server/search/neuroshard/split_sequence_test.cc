#include <gmock/gmock.h>

#include "common/base/stop_signal.h"
#include "server/search/neuroshard/greedy_grid.h"
#include "tests/support/concave_cost_model.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::ConcaveCostModel;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SplitSequenceTest : public ::testing::Test {
 protected:
  SplitSequenceTest() {
    // Bytes descending: 3, 0, 1, 2, 4. Cost (dim x pooling) descending: 2, 1, 0, 4, 3.
    Add(1000, 16, 2);
    Add(100, 64, 5);
    Add(50, 64, 9);
    Add(100'000, 4, 1);
    Add(10, 24, 1);
    request_.memory.rule = MemoryRule::kWeightsOnly;
  }
  void Add(std::int64_t rows, std::int64_t dim, double pooling) {
    Table table;
    table.num_embeddings = rows;
    table.embedding_dim = dim;
    table.pooling_factor = pooling;
    request_.tables.push_back(table);
  }

  PlanRequest request_;
  BoundCostModel model_ = testing::BoundToRanks(1, ConcaveCostModel());
  NeverStop stop_;
  SearchContext context_{request_, model_, stop_, nullptr};
};

TEST_F(SplitSequenceTest, TheFirstHalfStaysAndTheSecondIsAppended) {
  ShardTable shard_table(context_);
  const SplitSequence base = MakeSequence(WholeTables(request_), shard_table);
  const SplitSequence once = Halve(base, 1, shard_table);
  const SplitSequence twice = Halve(once, 5, shard_table);
  EXPECT_EQ(twice.pieces[1], (Piece{1, 0, 32}));
  EXPECT_EQ(twice.pieces[5], (Piece{1, 32, 16}));
  EXPECT_EQ(twice.pieces[6], (Piece{1, 48, 16}));
  EXPECT_EQ(twice.shards[5], twice.shards[6]);
  EXPECT_NE(twice.shards[1], twice.shards[5]);
  EXPECT_EQ(shard_table.Whole(1, 32), twice.shards[1]);
}

TEST_F(SplitSequenceTest, CandidatesAreTheLargestAndTheCostliestThatCanBeHalved) {
  ShardTable shard_table(context_);
  const SplitSequence base = MakeSequence(WholeTables(request_), shard_table);
  shard_table.PredictNew();
  EXPECT_THAT(SplitCandidates(base, 1, shard_table), ElementsAre(2));  // 3 has 4 columns only
  EXPECT_THAT(SplitCandidates(base, 2, shard_table), ElementsAre(0, 1, 2));
  EXPECT_THAT(SplitCandidates(base, 10, shard_table), ElementsAre(0, 1, 2, 4));
}

TEST_F(SplitSequenceTest, HalvesStayAligned) {
  EXPECT_TRUE(CanHalve({0, 0, 8}));
  EXPECT_TRUE(CanHalve({0, 0, 24}));
  EXPECT_FALSE(CanHalve({0, 0, 4}));
  EXPECT_FALSE(CanHalve({0, 0, 12}));
  EXPECT_FALSE(CanHalve({0, 0, 1}));
}

}  // namespace
}  // namespace neuroshard
