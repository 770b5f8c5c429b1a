#include "client/validate/plan_collectives.h"

#include <gmock/gmock.h>

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RankShards Holding(std::int64_t dim_sum, std::int64_t cut_row_columns,
                   std::int64_t replica_rows = 0) {
  RankShards rank;
  rank.dim_sum = dim_sum;
  rank.cut_row_columns = cut_row_columns;
  if (replica_rows > 0) {
    MeasuredShard replica;
    replica.rows = replica_rows;
    replica.cols = 4;
    rank.replicas = {replica};
  }
  return rank;
}

std::vector<Collective> Kinds(const std::vector<CommSample>& samples) {
  std::vector<Collective> kinds;
  for (const CommSample& sample : samples) kinds.push_back(sample.collective);
  return kinds;
}

TEST(PlanCollectivesTest, WholeRowsAreExchangedInBothDirections) {
  for (const CommDirection direction : {CommDirection::kForward, CommDirection::kBackward}) {
    const auto samples = CollectivesOf({Holding(8, 0), Holding(0, 0)}, direction, 64);
    ASSERT_EQ(samples.size(), 1u);
    EXPECT_EQ(samples[0].collective, Collective::kAllToAll);
    EXPECT_EQ(samples[0].direction, direction);
    EXPECT_THAT(samples[0].dim_sums, ElementsAre(8, 0));
    EXPECT_EQ(samples[0].batch_size, 64);
  }
}

TEST(PlanCollectivesTest, AllToAllsAreInTheTypeOfTheirDirection) {
  const std::vector<RankShards> ranks(2, Holding(8, 4));
  const QuantizedComms comms = {DataType::kFp16, DataType::kInt8};
  const auto forward = CollectivesOf(ranks, CommDirection::kForward, 64, comms);
  EXPECT_EQ(forward[0].wire_dtype, DataType::kFp16);
  EXPECT_EQ(forward[0].element_bytes, 2);
  EXPECT_EQ(forward[1].wire_dtype, DataType::kFp32) << "sums are of fp32";
  const auto backward = CollectivesOf(ranks, CommDirection::kBackward, 64, comms);
  EXPECT_EQ(backward[0].wire_dtype, DataType::kFp32) << "nothing casts to int8";
  EXPECT_EQ(backward[0].element_bytes, 4);
}

TEST(PlanCollectivesTest, PartialSumsAreScatteredAndGatheredWithEqualBuffers) {
  const std::vector<RankShards> ranks = {Holding(8, 16), Holding(0, 4)};
  const auto forward = CollectivesOf(ranks, CommDirection::kForward, 64);
  EXPECT_THAT(Kinds(forward), ElementsAre(Collective::kAllToAll, Collective::kReduceScatter));
  EXPECT_THAT(forward[1].dim_sums, ElementsAre(16, 16));
  const auto backward = CollectivesOf(ranks, CommDirection::kBackward, 64);
  EXPECT_THAT(Kinds(backward), ElementsAre(Collective::kAllToAll, Collective::kAllGather));
  EXPECT_THAT(backward[1].dim_sums, ElementsAre(16, 16));
  EXPECT_NE(backward[0].sample_id, backward[1].sample_id);
  EXPECT_THAT(NotesOn(ranks), ElementsAre(HasSubstr("4 to 16 columns")));
  EXPECT_THAT(NotesOn({Holding(8, 16), Holding(0, 16)}), IsEmpty());
}

TEST(PlanCollectivesTest, ReplicasAreReducedValueForValueWhateverTheBatch) {
  for (const std::int64_t rows : {1, 7, 1000, 123'457}) {
    const std::vector<RankShards> ranks(3, Holding(0, 0, rows));
    EXPECT_THAT(CollectivesOf(ranks, CommDirection::kForward, 96), IsEmpty());
    const auto backward = CollectivesOf(ranks, CommDirection::kBackward, 96);
    ASSERT_EQ(backward.size(), 1u);
    EXPECT_EQ(backward[0].collective, Collective::kAllReduce);
    EXPECT_LE(backward[0].batch_size, 96);
    EXPECT_EQ(backward[0].batch_size % 3, 0);
    const std::int64_t columns = backward[0].dim_sums[0];
    const std::int64_t extra = backward[0].batch_size * columns - rows * 4;
    EXPECT_GE(extra, 0);
    EXPECT_LE(extra, 3 * columns) << "rounding to whole columns of a batch for 3 ranks";
    EXPECT_THAT(NotesOn(ranks), ElementsAre(HasSubstr("replicas")));
  }
}

}  // namespace
}  // namespace neuroshard
