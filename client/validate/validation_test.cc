#include "client/validate/validation.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <sstream>

#include "tests/support/fake_worker.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using testing::FakeWorker;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

class ValidationTest : public ::testing::Test {
 protected:
  ValidationTest() {
    request_.topology.devices.assign(2, Device{0, 1'000'000});
    request_.global_batch_size = 64;
    MeasuredShard shard;
    shard.rows = 100;
    shard.cols = 8;
    ranks_.resize(2);
    for (RankShards& rank : ranks_) {
      rank.shards = {shard};
      rank.dim_sum = 8;
    }
  }

  StatusOr<ValidationReport> Run(const std::vector<std::string>& workers,
                                 const StopSignal& stop = NeverStop()) {
    ValidationOptions options;
    options.workers = workers;
    options.cadence = cadence_;
    ProgressDisplay display(notes_, clock_, DisplayMode::kLog);
    return Validate(request_, ranks_, options, stop, display);
  }

  PlanRequest request_;
  Cadence cadence_ = Cadence::kBarrier;
  std::vector<RankShards> ranks_;
  SteadyClock clock_;
  std::ostringstream notes_;
};

// Stops once a rank of `worker` waits in its exchange: all groups are open then.
class StopInExchange final : public StopSignal {
 public:
  explicit StopInExchange(const FakeWorker& worker) : worker_(worker) {}
  bool ShouldStop() const override { return worker_.hanging(); }

 private:
  const FakeWorker& worker_;
};

TEST_F(ValidationTest, MeasuresEveryStageOfEveryRank) {
  FakeWorker a;
  FakeWorker b;
  const auto report = Run({a.address(), b.address()});
  ASSERT_THAT(report, IsOk());
  // The fake answers 1 + 2 ms compute and 1 ms for each collective.
  EXPECT_EQ(report->embedding_cost_ms(), 5.0);
  EXPECT_EQ(report->ranks[1].worker, b.address());
  EXPECT_THAT(notes_.str(), HasSubstr("compute of rank 1"));
}

TEST_F(ValidationTest, AStageTakesTheSumOfItsCollectivesEachWithItsOwnRecord) {
  FakeWorker a;
  FakeWorker b;
  for (RankShards& rank : ranks_) {
    rank.cut_row_columns = 16;
    rank.replicas = {rank.shards[0]};
  }
  const auto report = Run({a.address(), b.address()});
  ASSERT_THAT(report, IsOk());
  const MeasuredRank& rank = report->ranks[1];
  EXPECT_EQ(rank.compute_ms(), 6.0) << "shards, and replicas";
  EXPECT_EQ(rank.backward_comm_ms, 3.0) << "all_to_all, all_gather, all_reduce";
  EXPECT_EQ(rank.forward_comm_ms, 2.0) << "all_to_all, reduce_scatter";
  ASSERT_EQ(report->compute.size(), 4u);
  EXPECT_EQ(report->compute[2].sample.batch_size, 64);
  EXPECT_EQ(report->compute[3].sample.sample_id, "rank-1-replicas");
  EXPECT_EQ(report->compute[3].sample.batch_size, 32);
  ASSERT_EQ(report->comm.size(), 5u);
  EXPECT_EQ(report->comm[3].sample.start_offsets_ms.size(), 2u) << "only the first waits";
  EXPECT_EQ(report->comm[4].sample.collective, Collective::kReduceScatter);
  EXPECT_TRUE(report->comm[4].sample.start_offsets_ms.empty());
}

TEST_F(ValidationTest, CollectivesInRowsWaitForNoOffsets) {
  FakeWorker a;
  FakeWorker b;
  cadence_ = Cadence::kBackToBack;
  const auto report = Run({a.address(), b.address()});
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->comm.size(), 2u);
  for (const MeasuredCommSample& measured : report->comm) {
    EXPECT_EQ(measured.sample.cadence, Cadence::kBackToBack);
    EXPECT_TRUE(measured.sample.start_offsets_ms.empty());
  }
}

TEST_F(ValidationTest, TablesInHostMemoryOfAWorkerThatLacksThemAreInDeviceMemoryAndThatIsSaid) {
  ranks_[1].shards[0].compute_kernel = ComputeKernel::kFusedUvm;
  FakeWorker old;
  FakeWorker old_too;
  FakeWorker able({.compute_kernels = {"fused", "fused_uvm"}});
  FakeWorker able_too({.compute_kernels = {"fused", "fused_uvm"}});
  const auto replaced = Run({old.address(), old_too.address()});
  ASSERT_THAT(replaced, IsOk());
  EXPECT_THAT(replaced->notes,
              ::testing::Contains(HasSubstr("of rank 1 were looked up in device memory")));
  const auto measured = Run({able.address(), able_too.address()});
  ASSERT_THAT(measured, IsOk());
  EXPECT_THAT(measured->notes, ::testing::Not(::testing::Contains(HasSubstr("in device memory"))));
}

TEST_F(ValidationTest, TheDistributionOfIdsCountsWhereThePipelineDoesNotHideIt) {
  FakeWorker a({.collective_backend = "neuroshard-tcp"});
  FakeWorker b({.collective_backend = "neuroshard-tcp"});
  for (RankShards& rank : ranks_) {
    rank.ids = {1, 10, 0, 0};
    rank.weighted_ids = {0, 0, 1, 5};
  }
  const auto run = [&] { return *Run({a.address(), b.address()}); };
  EXPECT_EQ(run().input_dist, InputDistUse::kNotMeasured) << "no pipeline_type";
  EXPECT_EQ(run().ranks[0].input_dist_ms, std::nullopt);

  request_.pipeline_type = PipelineType::kNone;
  const ValidationReport exposed = run();
  EXPECT_EQ(exposed.input_dist, InputDistUse::kExposed);
  EXPECT_EQ(exposed.ranks[1].input_dist_ms, 2.0) << "with weights, and without";
  EXPECT_EQ(exposed.total_ms(1), 7.0);
  ASSERT_EQ(exposed.comm.size(), 4u);
  EXPECT_TRUE(exposed.comm[1].sample.input_dist->weighted);

  request_.pipeline_type = PipelineType::kTrainSparseDist;
  const ValidationReport hidden = run();
  EXPECT_EQ(hidden.ranks[1].input_dist_ms, 2.0);
  EXPECT_EQ(hidden.total_ms(1), 5.0);

  FakeWorker failing({.out_of_memory = {"input_dist"}, .collective_backend = "neuroshard-tcp"});
  request_.pipeline_type = PipelineType::kNone;
  const auto broken = Run({failing.address(), b.address()});
  ASSERT_THAT(broken, IsOk());
  EXPECT_EQ(broken->embedding_cost_ms(), std::nullopt);
  EXPECT_THAT(broken->ranks[0].problem, HasSubstr("out_of_memory"));

  FakeWorker other;
  const auto unable = Run({a.address(), other.address()});
  ASSERT_THAT(unable, IsOk());
  EXPECT_EQ(unable->input_dist, InputDistUse::kNotMeasured);
  EXPECT_EQ(unable->embedding_cost_ms(), 5.0);
  EXPECT_THAT(unable->notes,
              ::testing::Contains(HasSubstr("the distribution of ids was not measured")));
}

// The start offsets of the forward exchange have what came before it.
TEST_F(ValidationTest, RanksThatGetMoreIdsEnterTheForwardExchangeLater) {
  FakeWorker a({.collective_backend = "neuroshard-tcp"});
  FakeWorker b({.collective_backend = "neuroshard-tcp"});
  request_.pipeline_type = PipelineType::kNone;
  ranks_[0].shards.clear();
  const auto report = Run({a.address(), b.address()});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->ranks[0].input_dist_ms, 0.0) << "there are no ids";
  EXPECT_EQ(report->ranks[1].start_offset_ms, 3.0);
}

// Of collectives that nobody knows to have casts.
TEST_F(ValidationTest, ExchangesOfWorkersWithoutCastsAreInFp32AndThatIsSaid) {
  FakeWorker a;
  FakeWorker b;
  const auto notes = [&] { return Run({a.address(), b.address()})->notes; };
  const auto said = ::testing::Contains(HasSubstr("quantized_comms is left out"));
  request_.quantized_comms.forward_dtype = DataType::kFp16;
  const auto report = Run({a.address(), b.address()});
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->notes, said);
  for (const MeasuredCommSample& exchange : report->comm) {
    EXPECT_EQ(exchange.sample.wire_dtype, DataType::kFp32);
  }
  request_.quantized_comms.forward_dtype = DataType::kFp32;
  EXPECT_THAT(notes(), ::testing::Not(said));
}

TEST_F(ValidationTest, WithoutOneOfItsCollectivesAStageIsNotKnown) {
  FakeWorker a({.out_of_memory = {"forward-reduce_scatter", "rank-0-replicas"}});
  FakeWorker b({.out_of_memory = {"backward"}});
  for (RankShards& rank : ranks_) {
    rank.cut_row_columns = 16;
    rank.replicas = {rank.shards[0]};
  }
  const auto report = Run({a.address(), b.address()});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->ranks[0].compute_ms(), std::nullopt);
  EXPECT_EQ(report->ranks[0].backward_comm_ms, 3.0);
  EXPECT_EQ(report->ranks[1].compute_ms(), 6.0);
  EXPECT_EQ(report->ranks[1].backward_comm_ms, std::nullopt);
  EXPECT_EQ(report->embedding_cost_ms(), std::nullopt);
}

TEST_F(ValidationTest, AWorkerThatDoesNotKnowACollectiveIsNamed) {
  FakeWorker a({.knows_all_to_all_only = true});
  FakeWorker b;
  for (RankShards& rank : ranks_) rank.cut_row_columns = 16;
  EXPECT_THAT(Run({a.address(), b.address()}), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                        HasSubstr("does not know all_gather")));
}

TEST_F(ValidationTest, RanksThatMeetOverDifferentNetworksAreNamedOnce) {
  FakeWorker a({.network_interface = "eth0"});
  FakeWorker b({.network_interface = "ib0"});
  const auto report = Run({a.address(), b.address()});
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(
      report->notes,
      ::testing::Contains("the ranks of the group use different networks: 0 over eth0; 1 over ib0")
          .Times(1));
}

TEST_F(ValidationTest, WhatWasMeasuredIsRecordedOnce) {
  FakeWorker a({.out_of_memory = {"rank-0"}});
  FakeWorker b;
  ranks_.emplace_back();
  request_.topology.devices.assign(3, Device{0, 1'000'000});
  request_.global_batch_size = 66;
  FakeWorker c;
  const auto report = Run({a.address(), b.address(), c.address()});
  ASSERT_THAT(report, IsOk());
  const std::string path = ::testing::TempDir() + "validation_" + report->run_id + ".db";
  NS_ASSERT_OK_AND_ASSIGN(const auto store, ProfileStore::Open(path, StoreMode::kReadWrite));
  for (int time = 0; time < 2; ++time) {
    // Two ranks have shards; without compute of rank 0 there is no forward collective.
    NS_ASSERT_OK_AND_ASSIGN(const std::int64_t recorded,
                            RecordValidation(*report, "batch_size: 66", *store));
    EXPECT_EQ(recorded, 3);
  }
  NS_ASSERT_OK_AND_ASSIGN(const auto sweeps, store->Statistics());
  ASSERT_EQ(sweeps.size(), 2u);
  EXPECT_EQ(sweeps[0].name, "validation");
  EXPECT_EQ(sweeps[0].out_of_memory, 1);
  EXPECT_EQ(sweeps[0].pending() + sweeps[1].pending(), 0);
  NS_ASSERT_OK_AND_ASSIGN(const auto compute, store->ReadRecords<ComputeRecord>());
  ASSERT_EQ(compute.size(), 1u);
  EXPECT_EQ(compute[0].sample.shards, ranks_[1].shards);
  EXPECT_EQ(compute[0].sample.batch_size, 66);
  NS_ASSERT_OK_AND_ASSIGN(const auto comm, store->ReadRecords<CommRecord>());
  ASSERT_EQ(comm.size(), 1u);
  EXPECT_EQ(comm[0].sample.direction, CommDirection::kBackward);
  EXPECT_EQ(comm[0].sample.dim_sums, (std::vector<std::int64_t>{8, 8, 0}));
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path + suffix);
}

TEST_F(ValidationTest, AStopEndsACollectiveAndClosesTheGroup) {
  FakeWorker a({.hangs = {"backward"}});
  FakeWorker b({.hangs = {"backward"}});
  EXPECT_THAT(Run({a.address(), b.address()}, StopInExchange(a)),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(a.open_groups(), 0);
  EXPECT_EQ(b.open_groups(), 0);
}

TEST_F(ValidationTest, AFailureOnOneDeviceEndsTheOthers) {
  FakeWorker broken({.breaks_always = {"rank-0"}});
  FakeWorker hanging({.hangs = {"rank-1"}});
  EXPECT_THAT(Run({broken.address(), hanging.address()}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr(broken.address())));
}

}  // namespace
}  // namespace neuroshard
