#include "server/pretrain/data/measured_problem.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "server/pretrain/testing/synthetic_records.h"

namespace neuroshard {
namespace {

TrainingProblem Compute(const std::vector<ComputeRecord>& records,
                        ComputeOutputs outputs = ComputeOutputs::kAuto) {
  const auto names = NeuroShardFeatureNames();
  const auto columns = FeatureColumns::Create(names, {{"row", "log1p"}});
  return *MakeComputeProblem(records, names, *columns, outputs);
}

TEST(MeasuredProblemTest, ASharedShardIsOneRowAndSamplesListTheirShards) {
  auto records = SyntheticComputeRecords(2);
  records[0].sample.shards.resize(1);
  records[1].sample.shards = {records[0].sample.shards[0], records[0].sample.shards[0]};
  const TrainingProblem problem = Compute(records);
  EXPECT_EQ(problem.num_rows(), 1);
  EXPECT_EQ(problem.num_samples(), 2);
  EXPECT_EQ(problem.sample_rows, (std::vector<std::int64_t>{0, 0, 0}));
  const MeasuredShard& shard = records[0].sample.shards[0];
  EXPECT_FLOAT_EQ(problem.rows[17], static_cast<float>(shard.cols));
  EXPECT_FLOAT_EQ(problem.rows[18], static_cast<float>(shard.pooling_factor));
  EXPECT_FLOAT_EQ(problem.rows[19],
                  static_cast<float>(std::log1p(static_cast<double>(shard.rows))));
}

TEST(MeasuredProblemTest, OutputsAreSplitOnlyWhenEveryRecordIs) {
  auto records = SyntheticComputeRecords(3);
  EXPECT_EQ(Compute(records).outputs, 2);
  EXPECT_TRUE(Compute(records).total_counts);
  EXPECT_EQ(Compute(records, ComputeOutputs::kTotal).outputs, 1);
  records[1].forward_ms = std::numeric_limits<double>::quiet_NaN();
  records[1].backward_ms = std::numeric_limits<double>::quiet_NaN();
  const TrainingProblem total = Compute(records);
  EXPECT_EQ(total.outputs, 1);
  EXPECT_FLOAT_EQ(total.targets[1], static_cast<float>(records[1].total_ms));
}

TEST(MeasuredProblemTest, CommSamplesAreTakenByDirectionAndRankCount) {
  auto records = SyntheticCommRecords(10, 3);
  const auto other = SyntheticCommRecords(4, 2);
  records.insert(records.end(), other.begin(), other.end());
  EXPECT_EQ(RankCounts(records), (std::vector<int>{2, 3}));
  const TrainingProblem backward = MakeCommProblem(records, CommDirection::kBackward, 3);
  EXPECT_EQ(backward.num_samples(), 5);
  EXPECT_EQ(backward.num_columns(), 3);
  const TrainingProblem forward = MakeCommProblem(records, CommDirection::kForward, 3);
  EXPECT_EQ(forward.num_samples(), 5);
  EXPECT_EQ(forward.num_columns(), 6);
  EXPECT_FLOAT_EQ(forward.rows[4], static_cast<float>(records[1].sample.start_offsets_ms[1]));
  EXPECT_FLOAT_EQ(forward.targets[2], static_cast<float>(records[1].cost_ms[2]));
}

TEST(MeasuredProblemTest, OtherCollectivesAreNotTakenForAllToAlls) {
  CommRecord exchange;
  exchange.sample.dim_sums = {8, 8};
  exchange.cost_ms = {1, 1};
  CommRecord gather = exchange;
  gather.sample.collective = Collective::kAllGather;
  gather.cost_ms = {9, 9};
  CommRecord wide_gather = gather;
  wide_gather.sample.dim_sums = {8, 8, 8};
  wide_gather.cost_ms = {9, 9, 9};
  const std::vector<CommRecord> records = {gather, exchange, wide_gather};
  EXPECT_EQ(RankCounts(records), (std::vector<int>{2}));
  EXPECT_EQ(MakeCommProblem(records, CommDirection::kForward, 2).targets,
            (std::vector<float>{1, 1}));
}

TEST(MeasuredProblemTest, RanksAreInterchangeableOnlyOnOneKnownHost) {
  auto records = SyntheticCommRecords(4, 3);
  EXPECT_EQ(MakeCommProblem(records, CommDirection::kBackward, 3).interchangeable_ranks, 3);
  auto hosts = records;
  hosts[0].environments[1].hostname = "host-b";
  EXPECT_EQ(MakeCommProblem(hosts, CommDirection::kBackward, 3).interchangeable_ranks, 0);
  auto imported = records;
  for (CommRecord& record : imported) record.environments.clear();
  EXPECT_EQ(MakeCommProblem(imported, CommDirection::kBackward, 3).interchangeable_ranks, 0);
}

}  // namespace
}  // namespace neuroshard
