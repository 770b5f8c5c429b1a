#include "common/store/profile_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <thread>

#include "common/domain/backend_names.h"
#include "common/store/testing/sqlite_store_fixture.h"
#include "common/store/testing/test_database.h"
#include "common/store/testing/test_samples.h"

namespace neuroshard {
namespace {

using testing::HasSubstr;

// What every kind of store promises. PostgreSQL takes part where there is one:
// tests/support/postgres_server.py starts it.
class ProfileStoreTest : public SqliteStoreTest, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    SqliteStoreTest::SetUp();
    if (IsPostgres()) database_.emplace(TestName());
  }
  bool IsPostgres() const { return GetParam() == "postgresql"; }
  std::string Path() const override {
    return IsPostgres() ? database_->address() : SqliteStoreTest::Path();
  }

  std::optional<TestDatabase> database_;
};

std::vector<std::string> Kinds() {
  std::vector<std::string> kinds = {"sqlite"};
  if (TestDatabase::Available()) kinds.push_back("postgresql");
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(Kinds, ProfileStoreTest, testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return kind.param; });

TEST_P(ProfileStoreTest, SamplesComeBackAsTheyWere) {
  const auto compute = ComputeSamples(7);
  const auto comm = CommSamples(5);
  auto store = MustOpen();
  const auto compute_sweep = store->BeginSweep<ComputeSample>(Info("h"), compute);
  const auto comm_sweep = store->BeginSweep<CommSample>(Info("h"), comm);
  ASSERT_TRUE(compute_sweep.ok()) << Message(compute_sweep.status());
  ASSERT_TRUE(comm_sweep.ok()) << Message(comm_sweep.status());
  EXPECT_NE(*compute_sweep, *comm_sweep);

  store = MustOpen();

  EXPECT_EQ(*store->PendingSamples<ComputeSample>(*compute_sweep), compute);
  EXPECT_EQ(*store->PendingSamples<CommSample>(*comm_sweep), comm);
  EXPECT_EQ(store->PendingSamples<CommSample>(*compute_sweep).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_P(ProfileStoreTest, RecordsFromBeforeHaveTheBackendNamesOfToday) {
  ComputeMeasurement compute = ComputeResult("c0");
  compute.environment.backend = "cpu";
  std::vector<CommMeasurement> comm = CommResults("m0");
  for (CommMeasurement& rank : comm) {
    rank.environment.backend = "cpu";
    rank.environment.properties["collective_backend"] = "gloo";
  }
  auto store = MustOpen();
  const std::int64_t compute_sweep =
      *store->BeginSweep<ComputeSample>(Info("h"), ComputeSamples(1));
  const std::int64_t comm_sweep = *store->BeginSweep<CommSample>(Info("h"), CommSamples(1));
  ASSERT_TRUE(store->AddComputeMeasurement(compute_sweep, compute).ok());
  ASSERT_TRUE(store->AddCommMeasurements(comm_sweep, "m0", comm).ok());

  EXPECT_EQ(store->ReadRecords<ComputeRecord>()->front().environment.backend, "neuroshard-cpu");
  const auto records = store->ReadRecords<CommRecord>();
  ASSERT_TRUE(records.ok()) << records.status();
  for (const MeasurementEnvironment& rank : records->front().environments) {
    EXPECT_EQ(rank.backend, "neuroshard-cpu");
    EXPECT_EQ(CollectiveBackendOf(rank), "neuroshard-tcp");
  }
}

TEST_P(ProfileStoreTest, ASweepIsFoundAgainAndOnlyWhatIsMissingIsPending) {
  const auto samples = ComputeSamples(3);
  auto store = MustOpen();
  const std::int64_t sweep = *store->BeginSweep<ComputeSample>(Info("h"), samples);
  ASSERT_TRUE(store->AddComputeMeasurement(sweep, ComputeResult("c1")).ok());
  store.reset();

  store = MustOpen();
  EXPECT_EQ(*store->BeginSweep<ComputeSample>(Info("h"), samples), sweep);
  EXPECT_THAT(*store->PendingSamples<ComputeSample>(sweep),
              testing::ElementsAre(samples[0], samples[2]));

  EXPECT_EQ(store->BeginSweep<ComputeSample>(Info("h"), ComputeSamples(4)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  auto changed = samples;
  changed[2].shards[0].pooling_factor = std::nextafter(changed[2].shards[0].pooling_factor, 9.0);
  EXPECT_EQ(store->BeginSweep<ComputeSample>(Info("h"), changed).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(*store->BeginSweep<ComputeSample>(Info("other"), changed), sweep);
}

TEST_P(ProfileStoreTest, ASampleIsMeasuredOnce) {
  auto store = MustOpen();
  const std::int64_t sweep = *store->BeginSweep<ComputeSample>(Info("h"), ComputeSamples(2));
  ASSERT_TRUE(store->AddComputeMeasurement(sweep, ComputeResult("c0", Outcome::kOutOfMemory)).ok());

  EXPECT_EQ(store->AddComputeMeasurement(sweep, ComputeResult("c0")).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(store->AddComputeMeasurement(sweep, ComputeResult("c9")).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(store->AddComputeMeasurement(sweep + 1, ComputeResult("c1")).code(),
            absl::StatusCode::kNotFound);
  ComputeMeasurement broken = ComputeResult("c1");
  broken.forward.median_ms = std::nan("");
  EXPECT_EQ(store->AddComputeMeasurement(sweep, broken).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store->PendingSamples<ComputeSample>(sweep)->size(), 1u);
}

TEST_P(ProfileStoreTest, ACollectiveIsRecordedOnAllRanksOrNotAtAll) {
  auto store = MustOpen();
  const std::int64_t sweep = *store->BeginSweep<CommSample>(Info("h"), CommSamples(1));
  auto twice = CommResults("m0");
  twice[0].rank = twice[1].rank;
  auto outside = CommResults("m0");
  outside[0].rank = 3;
  auto foreign = CommResults("m0");
  foreign[1].sample_id = "m1";
  auto not_finite = CommResults("m0");
  not_finite[2].series.median_ms = -1;  // rank 0, the last to be inserted

  for (const auto& bad : {CommResults("m0", 2), twice, outside, foreign, not_finite}) {
    EXPECT_EQ(store->AddCommMeasurements(sweep, "m0", bad).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(store->PendingSamples<CommSample>(sweep)->size(), 1u);
  EXPECT_TRUE(store->AddCommMeasurements(sweep, "m0", CommResults("m0")).ok());
  EXPECT_EQ(store->AddCommMeasurements(sweep, "m0", CommResults("m0")).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(store->PendingSamples<CommSample>(sweep)->empty());
}

TEST_P(ProfileStoreTest, ReadsUsableRecordsAndCountsTheRest) {
  auto store = MustOpen();
  const auto samples = ComputeSamples(3);
  const std::int64_t sweep = *store->BeginSweep<ComputeSample>(Info("h"), samples);
  ASSERT_TRUE(store->AddComputeMeasurement(sweep, ComputeResult("c2")).ok());
  ASSERT_TRUE(store->AddComputeMeasurement(sweep, ComputeResult("c0", Outcome::kOutOfMemory)).ok());
  const auto comm = CommSamples(3);
  const std::int64_t comm_sweep = *store->BeginSweep<CommSample>(Info("h"), comm);
  ASSERT_TRUE(store->AddCommMeasurements(comm_sweep, "m1", CommResults("m1")).ok());
  auto failed = CommResults("m0");
  failed[1].outcome = Outcome::kOutOfMemory;
  ASSERT_TRUE(store->AddCommMeasurements(comm_sweep, "m0", failed).ok());

  const auto records = store->ReadRecords<ComputeRecord>();
  ASSERT_TRUE(records.ok()) << Message(records.status());
  ASSERT_EQ(records->size(), 1u);
  EXPECT_EQ((*records)[0].sample, samples[2]);
  EXPECT_EQ((*records)[0].forward_ms, 0.1);
  EXPECT_EQ((*records)[0].total_ms, 0.1 + 0.2);
  EXPECT_EQ((*records)[0].environment, Environment(1234));

  const auto least = store->ReadRecords<ComputeRecord>(SeriesCost::kLeast);
  ASSERT_EQ(least->size(), 1u);
  EXPECT_EQ((*least)[0].forward_ms, 0.1 * 0.9);
  EXPECT_EQ((*least)[0].total_ms, 0.1 * 0.9 + 0.2 * 0.9);
  EXPECT_THAT(store->ReadRecords<CommRecord>(SeriesCost::kLeast)->at(0).cost_ms,
              testing::ElementsAre(0.9, 1.8, testing::DoubleEq(2.7)));

  const auto comm_records = store->ReadRecords<CommRecord>();
  ASSERT_TRUE(comm_records.ok()) << Message(comm_records.status());
  ASSERT_EQ(comm_records->size(), 1u);
  EXPECT_EQ((*comm_records)[0].sample, comm[1]);
  EXPECT_THAT((*comm_records)[0].cost_ms, testing::ElementsAre(1.0, 2.0, 3.0));
  EXPECT_EQ((*comm_records)[0].environments[2], Environment(2));

  const auto statistics = *store->Statistics();
  ASSERT_EQ(statistics.size(), 2u);
  EXPECT_EQ(statistics[0].samples, 3);
  EXPECT_EQ(statistics[0].ok, 1);
  EXPECT_EQ(statistics[0].out_of_memory, 1);
  EXPECT_EQ(statistics[0].pending(), 1);
  EXPECT_EQ(statistics[1].kind, SweepKind::kComm);
  EXPECT_EQ(statistics[1].ok, 1);
  EXPECT_EQ(statistics[1].out_of_memory, 1);
}

TEST_P(ProfileStoreTest, RecordsWhatWasMeasuredOnceAndWholeOrNotAtAll) {
  const std::vector<MeasuredComputeSample> compute = {
      {MakeComputeSample(0), ComputeResult("c0")},
      {MakeComputeSample(1), ComputeResult("c1", Outcome::kOutOfMemory)}};
  std::vector<MeasuredCommSample> comm = {{MakeCommSample(0), CommResults("m0")}};
  auto store = MustOpen();
  comm[0].measurements[2].series.median_ms = -1;
  EXPECT_EQ(store->RecordMeasured(Info("h"), compute, comm).code(),
            absl::StatusCode::kInvalidArgument);
  comm[0].measurements = CommResults("m0", 2);
  EXPECT_EQ(store->RecordMeasured(Info("h"), compute, comm).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(store->Statistics()->empty()) << "nothing of a failed record";

  comm[0].measurements = CommResults("m0");
  for (int time = 0; time < 2; ++time) {
    const Status recorded = store->RecordMeasured(Info("h"), compute, comm);
    ASSERT_TRUE(recorded.ok()) << Message(recorded);
  }
  ASSERT_EQ(store->Statistics()->size(), 2u);
  EXPECT_EQ(store->Statistics()->at(0).pending() + store->Statistics()->at(1).pending(), 0);
  EXPECT_EQ(store->ReadRecords<ComputeRecord>()->size(), 1u);
  EXPECT_EQ(store->ReadRecords<CommRecord>()->front().environments[1], Environment(1));
  ASSERT_TRUE(store->RecordMeasured(Info("later"), compute, {}).ok());
  EXPECT_EQ(store->Statistics()->size(), 3u);
}

TEST_P(ProfileStoreTest, ImportsCostsOnce) {
  std::vector<ComputeRecord> costs;
  for (int i = 0; i < 4; ++i) {
    costs.emplace_back().sample = MakeComputeSample(i);
    costs.back().total_ms = 1.5 * i;
  }
  std::vector<CommRecord> comm_costs(1);
  comm_costs[0].sample = MakeCommSample(0);
  comm_costs[0].cost_ms = {1, 2, 3};
  auto store = MustOpen();
  const std::int64_t sweep = *store->ImportCosts<ComputeRecord>(Info("h"), costs);
  EXPECT_EQ(*store->ImportCosts<ComputeRecord>(Info("h"), costs), sweep);
  ASSERT_TRUE(store->ImportCosts<CommRecord>(Info("h"), comm_costs).ok());

  const auto records = *store->ReadRecords<ComputeRecord>();
  ASSERT_EQ(records.size(), 4u);
  EXPECT_TRUE(records[3].imported);
  EXPECT_EQ(records[3].total_ms, 4.5);
  EXPECT_TRUE(std::isnan(records[3].forward_ms));
  EXPECT_THAT((*store->ReadRecords<CommRecord>())[0].cost_ms, testing::ElementsAre(1, 2, 3));
  EXPECT_TRUE(store->Statistics()->at(0).imported);

  comm_costs[0].cost_ms.pop_back();
  EXPECT_EQ(store->ImportCosts<CommRecord>(Info("other"), comm_costs).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store->Statistics()->size(), 2u);  // nothing of the failed import
}

TEST_P(ProfileStoreTest, RefusesSamplesItCannotKeep) {
  auto store = MustOpen();
  auto twice = ComputeSamples(2);
  twice[1].sample_id = twice[0].sample_id;
  auto not_finite = CommSamples(1);
  not_finite[0].start_offsets_ms[1] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(store->BeginSweep<ComputeSample>(Info("h"), twice).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store->BeginSweep<CommSample>(Info("h"), not_finite).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(store->Statistics()->empty());
}

// Whatever a killed writer was told is stored is there, once, and the rest is still pending.
TEST_P(ProfileStoreTest, KillLosesNothingAcknowledged) {
  constexpr int kSamples = 400;
  const auto samples = ComputeSamples(kSamples);
  const std::int64_t sweep = *MustOpen()->BeginSweep<ComputeSample>(Info("h"), samples);
  std::set<std::string> acknowledged;
  for (int round = 0; round < 6 && acknowledged.size() < kSamples; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(pipe_ends[0]);
      auto store = ProfileStore::Open(Path(), StoreMode::kReadWrite);
      if (!store.ok()) _exit(2);
      const std::vector<ComputeSample> pending = *(*store)->PendingSamples<ComputeSample>(sweep);
      for (const ComputeSample& sample : pending) {
        const Status added =
            (*store)->AddComputeMeasurement(sweep, ComputeResult(sample.sample_id));
        if (!added.ok()) _exit(3);
        const std::string line = sample.sample_id + "\n";
        if (write(pipe_ends[1], line.data(), line.size()) < 0) _exit(4);
      }
      _exit(0);
    }
    close(pipe_ends[1]);
    // Killed after an acknowledged number of records, so at some point inside the next one.
    const std::size_t kill_at = acknowledged.size() + 20 + static_cast<std::size_t>(round) * 7;
    std::string line;
    char c = 0;
    bool killed = false;
    while (read(pipe_ends[0], &c, 1) == 1) {
      if (c != '\n') {
        line += c;
        continue;
      }
      EXPECT_TRUE(acknowledged.insert(line).second) << line << " was measured twice";
      line.clear();
      if (acknowledged.size() == kill_at) {
        kill(child, SIGKILL);
        killed = true;
      }
    }
    close(pipe_ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(killed ? WIFSIGNALED(status) || WEXITSTATUS(status) == 0 : WEXITSTATUS(status) == 0)
        << status;

    auto store = MustOpen();
    const std::vector<ComputeSample> pending = *store->PendingSamples<ComputeSample>(sweep);
    const auto records = *store->ReadRecords<ComputeRecord>();
    ASSERT_EQ(pending.size() + records.size(), samples.size());
    std::set<std::string> stored;
    for (const auto& record : records) stored.insert(record.sample.sample_id);
    for (const std::string& id : acknowledged) ASSERT_EQ(stored.count(id), 1u) << id;
    acknowledged = stored;  // one more may be stored than the parent heard of
  }
  EXPECT_GT(acknowledged.size(), 100u);
}

TEST_P(ProfileStoreTest, TwoProcessesCreateAndWriteTogether) {
  const auto samples = ComputeSamples(60);
  std::vector<pid_t> children;
  for (int parity = 0; parity < 2; ++parity) {
    const pid_t child = fork();
    if (child == 0) {
      auto store = ProfileStore::Open(Path(), StoreMode::kReadWrite);
      if (!store.ok()) _exit(2);
      const auto sweep = (*store)->BeginSweep<ComputeSample>(Info("h"), samples);
      if (!sweep.ok()) _exit(3);
      for (std::size_t i = static_cast<std::size_t>(parity); i < samples.size(); i += 2) {
        if (!(*store)->AddComputeMeasurement(*sweep, ComputeResult(samples[i].sample_id)).ok()) {
          _exit(4);
        }
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(MustOpen(StoreMode::kReadOnly)->ReadRecords<ComputeRecord>()->size(), samples.size());
}

TEST_P(ProfileStoreTest, ThreadsShareAStore) {
  const auto samples = ComputeSamples(40);
  auto store = MustOpen();
  const std::int64_t sweep = *store->BeginSweep<ComputeSample>(Info("h"), samples);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < samples.size(); i += 4) {
        EXPECT_TRUE(store->AddComputeMeasurement(sweep, ComputeResult(samples[i].sample_id)).ok());
        EXPECT_TRUE(store->PendingSamples<ComputeSample>(sweep).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(store->PendingSamples<ComputeSample>(sweep)->empty());
}

TEST_P(ProfileStoreTest, ReadOnlyReadsAndRefusesToWrite) {
  const std::int64_t sweep = *MustOpen()->BeginSweep<ComputeSample>(Info("h"), ComputeSamples(1));
  auto store = MustOpen(StoreMode::kReadOnly);
  EXPECT_EQ(store->PendingSamples<ComputeSample>(sweep)->size(), 1u);
  EXPECT_EQ(store->AddComputeMeasurement(sweep, ComputeResult("c0")).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store->BeginSweep<CommSample>(Info("x"), CommSamples(1)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace neuroshard
