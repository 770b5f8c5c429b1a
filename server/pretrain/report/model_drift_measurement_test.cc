#include "server/pretrain/report/model_drift_measurement.h"

#include <gmock/gmock.h>

#include "tests/support/fake_cost_model.h"

namespace neuroshard {
namespace {

// What the fake model says of it (1 + 4 x 2 / 100 ms), `times` over.
ComputeRecord LookupsTaking(double times, std::int64_t batch_size) {
  ComputeRecord record;
  MeasuredShard shard;
  shard.rows = 10;
  shard.cols = 4;
  shard.pooling_factor = 2;
  record.sample.shards = {shard};
  record.sample.batch_size = batch_size;
  record.total_ms = times * 1.08;
  record.environment.measured_at_unix_ms = 2000;
  return record;
}

// Two ranks that add 7 columns of a batch; the model says twice 7 / 1000 ms.
CommRecord AllReduceTaking(double times, std::int64_t batch_size) {
  CommRecord record;
  record.sample.collective = Collective::kAllReduce;
  record.sample.direction = CommDirection::kBackward;
  record.sample.dim_sums = {7, 7};
  record.sample.batch_size = batch_size;
  record.cost_ms = {times * 0.014, times * 0.014};
  record.environments.resize(2);
  record.environments[0].measured_at_unix_ms = 2000;
  return record;
}

TEST(ModelDriftMeasurementTest, AModelOfOneBatchSizeIsComparedAtThatAlone) {
  CostModelInfo info;
  info.coverage.max_ranks = 8;
  const std::vector<ComputeRecord> compute = {LookupsTaking(2, 64), LookupsTaking(9, 32)};
  const std::vector<CommRecord> comm = {AllReduceTaking(3, 64), AllReduceTaking(9, 32)};
  for (const std::int64_t batch_size : {64, 0}) {
    info.coverage.global_batch_size = batch_size;
    const auto drift = MeasureDrift(testing::FakeCostModel(info), compute, comm, 1000).stages;
    ASSERT_EQ(drift.size(), 2u);
    EXPECT_EQ(drift[0].stage, "all_reduce");
    EXPECT_EQ(drift[1].stage, "compute");
    for (const StageDrift& stage : drift) EXPECT_EQ(stage.samples, batch_size == 64 ? 1 : 2);
    EXPECT_NEAR(drift[0].median_ratio, batch_size == 64 ? 3 : 9, 1e-3);
    EXPECT_NEAR(drift[1].median_ratio, batch_size == 64 ? 2 : 9, 1e-3);
  }
  EXPECT_THAT(MeasureDrift(testing::FakeCostModel(info), compute, comm, 2000).stages,
              ::testing::IsEmpty());
}

TEST(ModelDriftMeasurementTest, MeasurementsOfOtherKernelsAndCollectivesSayNothing) {
  CostModelInfo info;
  info.coverage.max_ranks = 8;
  info.measured_with = {"Some CPU", "neuroshard-cpu", "neuroshard-tcp", "barrier"};
  std::vector<ComputeRecord> compute = {LookupsTaking(2, 64), LookupsTaking(9, 64)};
  compute[0].environment.backend = "neuroshard-cpu";
  compute[1].environment.backend = "fbgemm-cpu";
  std::vector<CommRecord> comm = {AllReduceTaking(3, 64), AllReduceTaking(9, 64),
                                  AllReduceTaking(9, 64)};
  comm[2].sample.cadence = Cadence::kBackToBack;
  comm[0].environments[0].properties["collective_backend"] = "neuroshard-tcp";
  comm[1].environments[0].properties["collective_backend"] = "torch-gloo";
  const auto drift = MeasureDrift(testing::FakeCostModel(info), compute, comm, 1000).stages;
  ASSERT_EQ(drift.size(), 2u);
  EXPECT_NEAR(drift[0].median_ratio, 3, 1e-3);
  EXPECT_NEAR(drift[1].median_ratio, 2, 1e-3);
}

TEST(ModelDriftMeasurementTest, OnlyLikeIsComparedWithLikeAndTheRestIsCounted) {
  CostModelInfo info;
  info.coverage.max_ranks = 8;
  info.measured_with = {"Some CPU", "neuroshard-cpu", "neuroshard-tcp"};
  std::vector<ComputeRecord> compute(5, LookupsTaking(2, 64));
  compute[1] = compute[2] = compute[3] = LookupsTaking(9, 64);
  compute[0].environment.properties["settings"] = "max_time_ms=2 flush_cache=true";
  compute[1].environment.properties["settings"] = "max_time_ms=2 flush_cache=false";
  compute[2].environment.device = "Other CPU";
  compute[3].environment.measured_at_unix_ms = 1000;
  const auto measured = MeasureDrift(testing::FakeCostModel(info), compute, {}, 1000);
  ASSERT_EQ(measured.stages.size(), 1u);
  EXPECT_EQ(measured.stages[0].samples, 2);
  EXPECT_NEAR(measured.stages[0].median_ratio, 2, 1e-3);
  EXPECT_THAT(
      measured.left_out,
      ::testing::ElementsAre(std::pair("another device", 1), std::pair("made before the model", 1),
                             std::pair("without the cache flushed between iterations", 1)));
  info.details["provenance.cache_flush"] = "without";
  const auto without = MeasureDrift(testing::FakeCostModel(info), compute, {}, 1000);
  EXPECT_NEAR(without.stages[0].p90_ratio, 9, 1e-3);
  EXPECT_EQ(without.left_out.at("with the cache flushed between iterations"), 1);
  info.details["provenance.cache_flush"] = kBothFlushes;
  EXPECT_EQ(MeasureDrift(testing::FakeCostModel(info), compute, {}, 1000).stages[0].samples, 3);
}

TEST(ModelDriftMeasurementTest, TheVerdictNamesWhatIsOff) {
  CostModelInfo info;
  info.typical_errors = {{"compute", 0.1}};
  StageDrift compute;
  compute.stage = "compute";
  compute.samples = 40;
  compute.median_ratio = 1.05;
  EXPECT_THAT(DriftVerdict(info, {compute}), ::testing::HasSubstr("still fits"));
  compute.median_ratio = 1.3;
  EXPECT_THAT(DriftVerdict(info, {compute}),
              ::testing::AllOf(::testing::HasSubstr("has drifted"),
                               ::testing::HasSubstr("compute takes 1.30 times"),
                               ::testing::HasSubstr("10% off is usual")));
  StageDrift comm;  // of one sample
  comm.stage = "backward_comm";
  comm.samples = 1;
  comm.median_ratio = 1.56;
  EXPECT_THAT(DriftVerdict(info, {comm}),
              ::testing::AllOf(::testing::HasSubstr("too little was measured"),
                               ::testing::HasSubstr("do not tell: backward_comm (1)")));
  EXPECT_THAT(DriftVerdict(info, {comm, compute}),
              ::testing::AllOf(::testing::HasSubstr("has drifted: compute takes 1.30"),
                               ::testing::HasSubstr("do not tell: backward_comm (1)")));
}

}  // namespace
}  // namespace neuroshard
