#include <gmock/gmock.h>

#include <thread>

#include "client/sweep/sweep_run.h"
#include "client/sweep/testing/sweep_fixture.h"
#include "tests/support/fake_worker.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using testing::FakeWorker;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

std::vector<CommSample> SomeSamples(int count, std::size_t num_ranks) {
  std::vector<CommSample> samples;
  for (int i = 0; i < count; ++i) {
    CommSample sample;
    sample.sample_id = fmt::format("m{:06}b", i);
    sample.direction = CommDirection::kBackward;
    sample.dim_sums.assign(num_ranks, 64);
    sample.batch_size = 64;
    samples.push_back(sample);
  }
  return samples;
}

class CommSweepTest : public testing::SweepFixture {
 protected:
  SweepReport Sweep(const std::vector<CommSample>& samples, FleetOptions fleet) {
    const auto id = store_->BeginSweep<CommSample>({"test", "hash", ""}, samples);
    EXPECT_THAT(id, IsOk());
    sweep_id_ = *id;
    auto pending = store_->PendingSamples<CommSample>(sweep_id_);
    EXPECT_THAT(pending, IsOk());
    return RunSweep(Run(std::move(fleet)), *std::move(pending));
  }
};

TEST_F(CommSweepTest, OneGroupCrossesTheWorkersAndServesAllSamples) {
  FakeWorker a({.num_devices = 2});
  FakeWorker b({.num_devices = 2});
  const SweepReport report = Sweep(SomeSamples(20, 4), QuickFleet({a.address(), b.address()}));
  EXPECT_THAT(report.status, IsOk());
  EXPECT_EQ(report.recorded, 20);
  EXPECT_EQ(Statistics().pending(), 0);
  EXPECT_THAT(a.ranks_seen(), ElementsAre(0, 2));
  EXPECT_THAT(b.ranks_seen(), ElementsAre(1, 3));
  EXPECT_EQ(a.groups_opened(), 1);
  EXPECT_EQ(a.open_groups(), 0) << "left open";
}

TEST_F(CommSweepTest, ABrokenGroupIsOpenedAgainAndNothingIsLost) {
  FakeWorker a;
  FakeWorker b({.aborts_comm_once = true});
  const SweepReport report = Sweep(SomeSamples(5, 2), QuickFleet({a.address(), b.address()}));
  EXPECT_THAT(report.status, IsOk());
  EXPECT_EQ(report.recorded, 5);
  EXPECT_EQ(Statistics().pending(), 0);
  EXPECT_EQ(a.groups_opened(), 2);
  EXPECT_EQ(a.open_groups(), 0);
}

TEST_F(CommSweepTest, TheOthersGoOnWithoutAWorkerThatDied) {
  FakeWorker a({.num_devices = 2});
  FakeWorker b({.num_devices = 2, .dies_after_samples = 4});
  const SweepReport report = Sweep(SomeSamples(10, 2), QuickFleet({a.address(), b.address()}));
  EXPECT_THAT(report.status, IsOk());
  EXPECT_EQ(report.recorded, 10);
  EXPECT_EQ(Statistics().pending(), 0);
  EXPECT_THAT(a.ranks_seen(), ElementsAre(0, 1));
  ASSERT_EQ(report.lost.size(), 1u);
  EXPECT_EQ(report.lost[0].worker, b.address());
}

TEST_F(CommSweepTest, AWorkerThatComesBackIsUsedAgain) {
  FakeWorker a;
  FakeWorker b({.dies_after_samples = 2});
  std::thread operator_of_the_worker([&] {
    while (!b.dead()) std::this_thread::yield();
    b.Revive();
  });
  const SweepReport report = Sweep(SomeSamples(6, 2), QuickFleet({a.address(), b.address()}));
  operator_of_the_worker.join();
  EXPECT_THAT(report.status, IsOk());
  EXPECT_EQ(Statistics().pending(), 0);
  EXPECT_TRUE(report.lost.empty());
}

TEST_F(CommSweepTest, WithoutEnoughWorkersLeftItEnds) {
  FakeWorker a;
  FakeWorker b({.dies_after_samples = 2});
  FleetOptions fleet = QuickFleet({a.address(), b.address()});
  fleet.reconnect_window = std::chrono::milliseconds(50);
  const SweepReport report = Sweep(SomeSamples(6, 2), fleet);
  EXPECT_THAT(report.status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("group of 2 ranks")));
  EXPECT_EQ(report.recorded, 2);
  EXPECT_EQ(Statistics().pending(), 4);
}

TEST_F(CommSweepTest, RankCountsThatFitAreMeasuredAndTheRestIsReported) {
  FakeWorker a;
  FakeWorker b;
  std::vector<CommSample> samples = SomeSamples(3, 2);
  for (CommSample& large : SomeSamples(3, 8)) {
    large.sample_id = "large" + large.sample_id;
    samples.push_back(large);
  }
  const SweepReport report = Sweep(samples, QuickFleet({a.address(), b.address()}));
  EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("need 8 devices, the workers have 2")));
  EXPECT_EQ(report.recorded, 3);
}

TEST_F(CommSweepTest, OutOfMemoryIsARecord) {
  FakeWorker a({.out_of_memory = {"m000001b"}});
  FakeWorker b;
  const SweepReport report = Sweep(SomeSamples(3, 2), QuickFleet({a.address(), b.address()}));
  EXPECT_THAT(report.status, IsOk());
  EXPECT_EQ(report.out_of_memory, 1);
  EXPECT_EQ(Statistics().out_of_memory, 1);
  EXPECT_EQ(Statistics().pending(), 0);
}

TEST_F(CommSweepTest, ARefusedSampleIsGivenUpAndTheOthersAreMeasured) {
  FakeWorker a({.refused = {"m000001b"}});
  FakeWorker b;
  const SweepReport report = Sweep(SomeSamples(4, 2), QuickFleet({a.address(), b.address()}));
  EXPECT_THAT(report.status, IsOk());
  ASSERT_EQ(report.given_up.size(), 1u);
  EXPECT_EQ(report.recorded, 3);
}

TEST_F(CommSweepTest, EveryCollectiveIsRecordedAsWhatItIs) {
  FakeWorker a;
  FakeWorker b;
  std::vector<CommSample> samples = SomeSamples(4, 2);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].collective = kWords<Collective>[i].value;
  }
  const SweepReport report = Sweep(samples, QuickFleet({a.address(), b.address()}));
  EXPECT_THAT(report.status, IsOk());
  const auto records = store_->ReadRecords<CommRecord>();
  ASSERT_THAT(records, IsOk());
  ASSERT_EQ(records->size(), 4u);
  for (std::size_t i = 0; i < samples.size(); ++i) EXPECT_EQ((*records)[i].sample, samples[i]);
}

// It would measure an all-to-all and not say so.
TEST_F(CommSweepTest, AnOldWorkersAllToAllIsNotTakenForAnotherCollective) {
  FakeWorker a({.knows_all_to_all_only = true});
  FakeWorker b;
  std::vector<CommSample> samples = SomeSamples(2, 2);
  samples[1].collective = Collective::kAllGather;
  const SweepReport report = Sweep(samples, QuickFleet({a.address(), b.address()}));
  EXPECT_EQ(report.recorded, 1);
  ASSERT_EQ(report.given_up.size(), 1u);
  EXPECT_THAT(report.given_up[0].reason, HasSubstr("does not know all_gather"));
}

TEST_F(CommSweepTest, AnOldWorkersBarrierIsNotTakenForBackToBack) {
  FakeWorker a, b, old({.knows_all_to_all_only = true});
  std::vector<CommSample> samples = SomeSamples(2, 2);
  samples[1].cadence = Cadence::kBackToBack;
  const SweepReport report = Sweep(samples, QuickFleet({a.address(), old.address()}));
  EXPECT_EQ(report.recorded, 1);
  ASSERT_EQ(report.given_up.size(), 1u);
  EXPECT_THAT(report.given_up[0].reason, HasSubstr("does not know back_to_back"));
  EXPECT_EQ(Sweep(samples, QuickFleet({a.address(), b.address()})).recorded, 1);
  EXPECT_EQ((*store_->ReadRecords<CommRecord>())[1].sample, samples[1]);
}

TEST_F(CommSweepTest, RanksOnDifferentNetworksAreWarnedOfOnce) {
  FakeWorker a({.network_interface = "eth0"});
  FakeWorker b({.network_interface = "ib0"});
  EXPECT_EQ(Sweep(SomeSamples(3, 2), QuickFleet({a.address(), b.address()})).recorded, 3);
  const std::string said = messages_.str();
  const std::string warning =
      "warning: the ranks of the group use different networks: 0 over eth0; 1 over ib0";
  EXPECT_THAT(said, HasSubstr(warning));
  EXPECT_EQ(said.find(warning), said.rfind(warning));
}

TEST_F(CommSweepTest, AStopCancelsWhatIsInFlightAndKeepsWhatIsDone) {
  FakeWorker a({.hangs = {"m000002b"}});
  FakeWorker b;
  std::thread user([&] {
    while (!a.hanging()) std::this_thread::yield();
    stop_.Stop();
  });
  const SweepReport report = Sweep(SomeSamples(5, 2), QuickFleet({a.address(), b.address()}));
  user.join();
  EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(report.recorded, 2);
  EXPECT_EQ(a.open_groups() + b.open_groups(), 0);
}

}  // namespace
}  // namespace neuroshard
