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

TEST(PlanCollectivesTest, IdsAreDistributedWithAndWithoutWeightsApart) {
  std::vector<RankShards> ranks(2, Holding(8, 0));
  EXPECT_THAT(*InputDistributionsOf(ranks, 64), IsEmpty());
  ranks[0].ids = {2, 20, 1, 3};
  ranks[1].ids = {0, 0, 1, 2};
  ranks[1].weighted_ids = {1, 4, 0, 0};
  const std::vector<CommSample> samples = *InputDistributionsOf(ranks, 64);
  ASSERT_EQ(samples.size(), 2u);
  const InputDistSample& plain = *samples[0].input_dist;
  EXPECT_FALSE(plain.weighted);
  EXPECT_THAT(plain.whole_features, ElementsAre(2, 0));
  EXPECT_THAT(plain.whole_ids, ElementsAre(20, 0));
  EXPECT_EQ(plain.cut_features, 1);
  EXPECT_EQ(plain.cut_ids, 5);
  EXPECT_THAT(samples[0].dim_sums, ElementsAre(0, 0));
  EXPECT_EQ(samples[0].batch_size, 64);
  const InputDistSample& weighted = *samples[1].input_dist;
  EXPECT_TRUE(weighted.weighted);
  EXPECT_THAT(weighted.whole_features, ElementsAre(0, 1));
  EXPECT_EQ(weighted.cut_features, 0);
  EXPECT_NE(samples[0].sample_id, samples[1].sample_id);

  EXPECT_THAT(InputDistNotesOn(ranks),
              ElementsAre(HasSubstr("2 to 3 ids a sample"), HasSubstr("one distribution")));
  ranks[1].ids.cut_ids = 2.999;
  ranks[1].weighted_ids = {};
  EXPECT_THAT(InputDistNotesOn(ranks), IsEmpty());
  ranks[0].ids.whole_features = 4097;
  EXPECT_EQ(InputDistributionsOf(ranks, 64).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(InputDistributionsOf(ranks, 64).status().message(),
              HasSubstr("4097 features and 20 ids a sample, workers distribute 4096"));
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
