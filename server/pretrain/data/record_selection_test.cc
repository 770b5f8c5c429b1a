#include "server/pretrain/data/record_selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/domain/rank_networks.h"
#include "server/pretrain/testing/synthetic_records.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RecordSelectionTest, RecordsOfOneKindPassWithTheirConditions) {
  const auto selected =
      SelectRecords(SyntheticComputeRecords(5), SyntheticCommRecords(4, 2), RecordFilter());
  ASSERT_TRUE(selected.ok()) << selected.status();
  EXPECT_EQ(selected->compute.size(), 5u);
  EXPECT_EQ(selected->comm.size(), 4u);
  EXPECT_EQ(selected->conditions,
            (MeasuredConditions{
                {"Some CPU", "neuroshard-cpu", "neuroshard-tcp", "barrier"}, 512, "fp32", "sgd"}));
  EXPECT_TRUE(selected->warnings.empty());
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

// Neither is taken for the other: on a busy machine rows take more than twice as long.
TEST(RecordSelectionTest, OneCadenceIsLearnedAndTheOtherNamed) {
  auto comm = SyntheticCommRecords(10, 2);
  for (std::size_t i = 0; i < 3; ++i) comm[i].sample.cadence = Cadence::kBackToBack;
  for (const auto support : {ConditionSupport::kOne, ConditionSupport::kAny}) {
    RecordFilter filter;
    const auto alone = SelectRecords({}, comm, filter, support);
    ASSERT_TRUE(alone.ok()) << alone.status();
    EXPECT_EQ(alone->comm.size(), 7u);
    EXPECT_EQ(alone->filtered_out, 3);
    EXPECT_EQ(alone->conditions.collective_cadence, "barrier");
    EXPECT_THAT(alone->warnings,
                ElementsAre(AllOf(HasSubstr("3 communication samples"), HasSubstr("back_to_back"),
                                  HasSubstr("records: {cadence: back_to_back}"))));
    filter.cadence = Cadence::kBackToBack;
    const auto in_rows = SelectRecords({}, comm, filter, support);
    ASSERT_TRUE(in_rows.ok()) << in_rows.status();
    EXPECT_EQ(in_rows->comm.size(), 3u);
    EXPECT_EQ(in_rows->conditions.collective_cadence, "back_to_back");
  }
}

void RunOver(CommRecord& record, std::vector<RankNetwork> networks) {
  for (std::size_t rank = 0; rank < networks.size(); ++rank) {
    auto& properties = record.environments[rank].properties;
    properties["network_interface"] = networks[rank].interface;
    properties["network"] = networks[rank].network;
  }
}

TEST(RecordSelectionTest, SamplesOverDifferentNetworksAreNamedWithTheirFigures) {
  const RankNetwork fast{"ib0", "192.168.0.0/16"}, slow{"eth0", "10.0.0.0/24"};
  auto comm = SyntheticCommRecords(6, 2);
  for (std::size_t i = 0; i < 6; ++i) {
    RunOver(comm[i], i < 2 ? std::vector{slow, slow} : std::vector{fast, fast});
    comm[i].cost_ms.assign(2, i < 2 ? 24200 : 260);
  }
  RecordFilter filter;
  const auto mixed = SelectRecords({}, comm, filter);
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  EXPECT_THAT(
      mixed->warnings,
      ElementsAre(AllOf(HasSubstr("within one host"), HasSubstr("eth0 10.0.0.0/24 (2 samples"),
                        HasSubstr("median 2.42e+04 ms"), HasSubstr("ib0 192.168.0.0/16 (4 samples"),
                        HasSubstr("median 260 ms"), HasSubstr("records: {network: ...}"))));
  for (const char* chosen : {"ib0", "192.168.0.0/16"}) {
    filter.network = chosen;
    const auto one = SelectRecords({}, comm, filter);
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_EQ(one->comm.size(), 4u);
    EXPECT_EQ(one->filtered_out, 2);
    EXPECT_TRUE(one->warnings.empty());
  }
  filter.network = "eth7";
  EXPECT_THAT(Message(SelectRecords({}, comm, filter).status()),
              HasSubstr("network: eth0 10.0.0.0/24 (2 records), ib0 192.168.0.0/16 (4 records)"));
}

TEST(RecordSelectionTest, RanksOfOneGroupOnDifferentNetworksAreNamed) {
  auto comm = SyntheticCommRecords(4, 2);
  for (CommRecord& record : comm)
    RunOver(record, {{"eth0", "10.0.0.0/24"}, {"ib0", "10.1.0.0/16"}});
  const auto selected = SelectRecords({}, comm, RecordFilter());
  ASSERT_TRUE(selected.ok()) << selected.status();
  EXPECT_THAT(selected->warnings,
              ElementsAre(AllOf(HasSubstr("In 4 samples the ranks of the group use different"),
                                HasSubstr("0 over eth0 10.0.0.0/24; 1 over ib0 10.1.0.0/16"))));
}

// Hosts whose networks are routed have interfaces of one name; the loopback is no network of hosts.
TEST(RecordSelectionTest, OneFabricIsNotTakenForTwo) {
  auto comm = SyntheticCommRecords(4, 2);
  RunOver(comm[0], {{"lo", "127.0.0.0/8"}, {"lo", "127.0.0.0/8"}});
  for (std::size_t i = 1; i < 4; ++i) {
    comm[i].environments[1].hostname = "another";
    RunOver(comm[i], {{"eth0", "10.0.0.0/24"}, {"eth0", "10.0.1.0/24"}});
  }
  const auto selected = SelectRecords({}, comm, RecordFilter());
  ASSERT_TRUE(selected.ok()) << selected.status();
  EXPECT_TRUE(selected->warnings.empty());
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
