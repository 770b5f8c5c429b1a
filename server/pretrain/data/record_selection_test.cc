#include "server/pretrain/data/record_selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "server/pretrain/testing/synthetic_records.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RecordSelectionTest, RecordsOfOneKindPassWithTheirConditions) {
  const auto selected =
      SelectRecords(SyntheticComputeRecords(5), SyntheticCommRecords(4, 2), RecordFilter());
  ASSERT_TRUE(selected.ok()) << selected.status();
  EXPECT_EQ(selected->compute.size(), 5u);
  EXPECT_EQ(selected->comm.size(), 4u);
  EXPECT_EQ(selected->conditions, (MeasuredConditions{512, "fp32", "sgd", "Some CPU",
                                                      "neuroshard-cpu", "neuroshard-tcp"}));
}

TEST(RecordSelectionTest, MixedConditionsAreListedWithTheWayToChoose) {
  auto compute = SyntheticComputeRecords(6);
  compute[0].sample.batch_size = 2048;
  compute[1].sample.optimizer = Optimizer::kAdagrad;
  compute[2].sample.shards[0].pooling_mode = PoolingMode::kMean;
  compute[3].environment.device = "Another CPU";
  const auto mixed = SelectRecords(compute, {}, RecordFilter());
  EXPECT_EQ(mixed.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(mixed.status()),
              AllOf(HasSubstr("batch_size: 2048 (1 records), 512 (5 records)"),
                    HasSubstr("optimizer: adagrad (1 records), sgd (5 records)"),
                    HasSubstr("pooling_mode: "), HasSubstr("device: Another CPU (1 records)"),
                    HasSubstr("--batch-size"), Not(HasSubstr("weight_dtype:"))));

  RecordFilter filter;
  filter.batch_size = 512;
  filter.optimizer = "sgd";
  filter.pooling_mode = "sum";
  filter.device = "Some CPU";
  const auto chosen = SelectRecords(compute, {}, filter);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->compute.size(), 2u);
  EXPECT_EQ(chosen->filtered_out, 4);
}

TEST(RecordSelectionTest, ComputeAndCommunicationMustAgreeOnTheBatchSize) {
  auto comm = SyntheticCommRecords(4, 2);
  for (CommRecord& record : comm) record.sample.batch_size = 1024;
  const auto mixed = SelectRecords(SyntheticComputeRecords(4), comm, RecordFilter());
  EXPECT_THAT(Message(mixed.status()), HasSubstr("batch_size: 1024 (4 records), 512 (4 records)"));
}

TEST(RecordSelectionTest, KernelsAndCollectivesMustAgree) {
  auto compute = SyntheticComputeRecords(4);
  compute[1].environment.backend = "fbgemm-cpu";
  auto comm = SyntheticCommRecords(3, 2);
  for (MeasurementEnvironment& rank : comm[0].environments) {
    rank.properties["collective_backend"] = "torch-gloo";
  }
  for (const auto support : {ConditionSupport::kOne, ConditionSupport::kAny}) {
    const auto mixed = SelectRecords(compute, comm, RecordFilter(), support);
    EXPECT_THAT(
        Message(mixed.status()),
        AllOf(HasSubstr("compute backend: fbgemm-cpu (1 records), neuroshard-cpu (3 records)"),
              HasSubstr("collective backend: neuroshard-tcp (2 records), torch-gloo (1 records)")));
  }
}

TEST(RecordSelectionTest, TheOriginalsNetworksLearnOfTablesInDeviceMemory) {
  auto compute = SyntheticComputeRecords(6);
  for (std::size_t i = 0; i < 2; ++i) {
    for (MeasuredShard& shard : compute[i].sample.shards) {
      shard.compute_kernel = ComputeKernel::kFusedUvm;
    }
  }
  EXPECT_THAT(Message(SelectRecords(compute, {}, RecordFilter()).status()),
              HasSubstr("compute_kernel: fused (4 records), fused_uvm (2 records)"));
  RecordFilter filter;
  filter.compute_kernel = "fused_uvm";
  EXPECT_THAT(Message(SelectRecords(compute, {}, filter).status()),
              HasSubstr("looked up by fused_uvm"));
  EXPECT_EQ(SelectRecords(compute, {}, filter, ConditionSupport::kAny)->compute.size(), 2u);
  filter.compute_kernel = "fused";
  EXPECT_EQ(SelectRecords(compute, {}, filter)->compute.size(), 4u);
}

TEST(RecordSelectionTest, TheOriginalsNetworksDoNotLearnOfIds) {
  auto comm = SyntheticCommRecords(4, 2);
  comm[1].sample.input_dist = InputDistSample();
  comm[1].sample.element_bytes = 2;
  const auto selected = SelectRecords({}, comm, RecordFilter());
  ASSERT_TRUE(selected.ok()) << selected.status();
  EXPECT_EQ(selected->comm.size(), 3u);
  EXPECT_TRUE(selected->input_dist.empty());
  EXPECT_EQ(selected->filtered_out, 1);
  EXPECT_EQ(SelectRecords({}, comm, RecordFilter(), ConditionSupport::kAny)->input_dist.size(), 1u);
}

TEST(RecordSelectionTest, ImportedRecordsStateNoDevice) {
  auto compute = SyntheticComputeRecords(3);
  for (ComputeRecord& record : compute) {
    record.environment = {};
    record.imported = true;
  }
  const auto selected = SelectRecords(compute, {}, RecordFilter());
  ASSERT_TRUE(selected.ok()) << selected.status();
  EXPECT_EQ(selected->conditions.device, "");
}

TEST(RecordSelectionTest, AnEmptyStoreAndAFilterThatFitsNothingAreErrors) {
  EXPECT_THAT(Message(SelectRecords({}, {}, RecordFilter()).status()),
              HasSubstr("no usable measurement"));
  RecordFilter filter;
  filter.batch_size = 4096;
  const auto none = SelectRecords(SyntheticComputeRecords(3), {}, filter);
  EXPECT_THAT(Message(none.status()),
              AllOf(HasSubstr("passes the filter"), HasSubstr("batch_size: 512 (3 records)")));
}

TEST(RecordSelectionTest, BadCostsAreNamed) {
  const double bad_values[] = {-1.0, std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::infinity()};
  for (const double bad : bad_values) {
    auto compute = SyntheticComputeRecords(3);
    compute[1].total_ms = bad;
    EXPECT_THAT(Message(SelectRecords(compute, {}, RecordFilter()).status()), HasSubstr(": c1"));
    auto comm = SyntheticCommRecords(3, 2);
    comm[2].cost_ms[1] = bad;
    EXPECT_THAT(Message(SelectRecords({}, comm, RecordFilter()).status()), HasSubstr(": m2-2"));
  }
  auto missing = SyntheticCommRecords(3, 2);
  missing[0].cost_ms.pop_back();
  EXPECT_FALSE(SelectRecords({}, missing, RecordFilter()).ok());
}

}  // namespace
}  // namespace neuroshard
