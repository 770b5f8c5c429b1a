#include "common/store/profile_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <thread>

#include "common/domain/backend_names.h"
#include "common/store/test_database.h"
#include "common/store/test_samples.h"

namespace neuroshard {
namespace {

using testing::HasSubstr;

// A directory of its own for every test.
class SqliteStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "store_" + TestName() + "_" + std::to_string(getpid());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // Of a file or a database.
  static std::string TestName() {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(name.begin(), name.end(), '/', '_');
    return name;
  }
  virtual std::string Path() const { return directory_ + "/store.db"; }
  std::unique_ptr<ProfileStore> MustOpen(StoreMode mode = StoreMode::kReadWrite) const {
    auto store = ProfileStore::Open(Path(), mode);
    EXPECT_TRUE(store.ok()) << Message(store.status());
    return store.ok() ? *std::move(store) : nullptr;
  }
  Status OpenStatus(const std::string& path, StoreMode mode = StoreMode::kReadWrite) const {
    return ProfileStore::Open(path, mode).status();
  }

  std::string directory_;
};

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
  const auto compute_sweep = store->BeginComputeSweep(Info("h"), compute);
  const auto comm_sweep = store->BeginCommSweep(Info("h"), comm);
  ASSERT_TRUE(compute_sweep.ok()) << Message(compute_sweep.status());
  ASSERT_TRUE(comm_sweep.ok()) << Message(comm_sweep.status());
  EXPECT_NE(*compute_sweep, *comm_sweep);

  store = MustOpen();

  EXPECT_EQ(*store->PendingComputeSamples(*compute_sweep), compute);
  EXPECT_EQ(*store->PendingCommSamples(*comm_sweep), comm);
  EXPECT_EQ(store->PendingCommSamples(*compute_sweep).status().code(), absl::StatusCode::kNotFound);
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
  const std::int64_t compute_sweep = *store->BeginComputeSweep(Info("h"), ComputeSamples(1));
  const std::int64_t comm_sweep = *store->BeginCommSweep(Info("h"), CommSamples(1));
  ASSERT_TRUE(store->AddComputeMeasurement(compute_sweep, compute).ok());
  ASSERT_TRUE(store->AddCommMeasurements(comm_sweep, "m0", comm).ok());

  EXPECT_EQ(store->ReadComputeRecords()->front().environment.backend, "neuroshard-cpu");
  const auto records = store->ReadCommRecords();
  ASSERT_TRUE(records.ok()) << records.status();
  for (const MeasurementEnvironment& rank : records->front().environments) {
    EXPECT_EQ(rank.backend, "neuroshard-cpu");
    EXPECT_EQ(CollectiveBackendOf(rank), "neuroshard-tcp");
  }
}

TEST_P(ProfileStoreTest, ASweepIsFoundAgainAndOnlyWhatIsMissingIsPending) {
  const auto samples = ComputeSamples(3);
  auto store = MustOpen();
  const std::int64_t sweep = *store->BeginComputeSweep(Info("h"), samples);
  ASSERT_TRUE(store->AddComputeMeasurement(sweep, ComputeResult("c1")).ok());
  store.reset();

  store = MustOpen();
  EXPECT_EQ(*store->BeginComputeSweep(Info("h"), samples), sweep);
  EXPECT_THAT(*store->PendingComputeSamples(sweep), testing::ElementsAre(samples[0], samples[2]));

  EXPECT_EQ(store->BeginComputeSweep(Info("h"), ComputeSamples(4)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  auto changed = samples;
  changed[2].shards[0].pooling_factor = std::nextafter(changed[2].shards[0].pooling_factor, 9.0);
  EXPECT_EQ(store->BeginComputeSweep(Info("h"), changed).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(*store->BeginComputeSweep(Info("other"), changed), sweep);
}

TEST_P(ProfileStoreTest, ASampleIsMeasuredOnce) {
  auto store = MustOpen();
  const std::int64_t sweep = *store->BeginComputeSweep(Info("h"), ComputeSamples(2));
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
  EXPECT_EQ(store->PendingComputeSamples(sweep)->size(), 1u);
}

TEST_P(ProfileStoreTest, ACollectiveIsRecordedOnAllRanksOrNotAtAll) {
  auto store = MustOpen();
  const std::int64_t sweep = *store->BeginCommSweep(Info("h"), CommSamples(1));
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
  EXPECT_EQ(store->PendingCommSamples(sweep)->size(), 1u);
  EXPECT_TRUE(store->AddCommMeasurements(sweep, "m0", CommResults("m0")).ok());
  EXPECT_EQ(store->AddCommMeasurements(sweep, "m0", CommResults("m0")).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(store->PendingCommSamples(sweep)->empty());
}

TEST_P(ProfileStoreTest, ReadsUsableRecordsAndCountsTheRest) {
  auto store = MustOpen();
  const auto samples = ComputeSamples(3);
  const std::int64_t sweep = *store->BeginComputeSweep(Info("h"), samples);
  ASSERT_TRUE(store->AddComputeMeasurement(sweep, ComputeResult("c2")).ok());
  ASSERT_TRUE(store->AddComputeMeasurement(sweep, ComputeResult("c0", Outcome::kOutOfMemory)).ok());
  const auto comm = CommSamples(3);
  const std::int64_t comm_sweep = *store->BeginCommSweep(Info("h"), comm);
  ASSERT_TRUE(store->AddCommMeasurements(comm_sweep, "m1", CommResults("m1")).ok());
  auto failed = CommResults("m0");
  failed[1].outcome = Outcome::kOutOfMemory;
  ASSERT_TRUE(store->AddCommMeasurements(comm_sweep, "m0", failed).ok());

  const auto records = store->ReadComputeRecords();
  ASSERT_TRUE(records.ok()) << Message(records.status());
  ASSERT_EQ(records->size(), 1u);
  EXPECT_EQ((*records)[0].sample, samples[2]);
  EXPECT_EQ((*records)[0].forward_ms, 0.1);
  EXPECT_EQ((*records)[0].total_ms, 0.1 + 0.2);
  EXPECT_EQ((*records)[0].environment, Environment(1234));

  const auto comm_records = store->ReadCommRecords();
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
  EXPECT_EQ(store->ReadComputeRecords()->size(), 1u);
  EXPECT_EQ(store->ReadCommRecords()->front().environments[1], Environment(1));
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
  const std::int64_t sweep = *store->ImportComputeCosts(Info("h"), costs);
  EXPECT_EQ(*store->ImportComputeCosts(Info("h"), costs), sweep);
  ASSERT_TRUE(store->ImportCommCosts(Info("h"), comm_costs).ok());

  const auto records = *store->ReadComputeRecords();
  ASSERT_EQ(records.size(), 4u);
  EXPECT_TRUE(records[3].imported);
  EXPECT_EQ(records[3].total_ms, 4.5);
  EXPECT_TRUE(std::isnan(records[3].forward_ms));
  EXPECT_THAT((*store->ReadCommRecords())[0].cost_ms, testing::ElementsAre(1, 2, 3));
  EXPECT_TRUE(store->Statistics()->at(0).imported);

  comm_costs[0].cost_ms.pop_back();
  EXPECT_EQ(store->ImportCommCosts(Info("other"), comm_costs).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store->Statistics()->size(), 2u);  // nothing of the failed import
}

TEST_P(ProfileStoreTest, RefusesSamplesItCannotKeep) {
  auto store = MustOpen();
  auto twice = ComputeSamples(2);
  twice[1].sample_id = twice[0].sample_id;
  auto not_finite = CommSamples(1);
  not_finite[0].start_offsets_ms[1] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(store->BeginComputeSweep(Info("h"), twice).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store->BeginCommSweep(Info("h"), not_finite).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(store->Statistics()->empty());
}

// Whatever a killed writer was told is stored is there, once, and the rest is still pending.
TEST_P(ProfileStoreTest, KillLosesNothingAcknowledged) {
  constexpr int kSamples = 400;
  const auto samples = ComputeSamples(kSamples);
  const std::int64_t sweep = *MustOpen()->BeginComputeSweep(Info("h"), samples);
  std::set<std::string> acknowledged;
  for (int round = 0; round < 6 && acknowledged.size() < kSamples; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(pipe_ends[0]);
      auto store = ProfileStore::Open(Path(), StoreMode::kReadWrite);
      if (!store.ok()) _exit(2);
      const std::vector<ComputeSample> pending = *(*store)->PendingComputeSamples(sweep);
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
    const std::vector<ComputeSample> pending = *store->PendingComputeSamples(sweep);
    const auto records = *store->ReadComputeRecords();
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
      const auto sweep = (*store)->BeginComputeSweep(Info("h"), samples);
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
  EXPECT_EQ(MustOpen(StoreMode::kReadOnly)->ReadComputeRecords()->size(), samples.size());
}

TEST_P(ProfileStoreTest, ThreadsShareAStore) {
  const auto samples = ComputeSamples(40);
  auto store = MustOpen();
  const std::int64_t sweep = *store->BeginComputeSweep(Info("h"), samples);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < samples.size(); i += 4) {
        EXPECT_TRUE(store->AddComputeMeasurement(sweep, ComputeResult(samples[i].sample_id)).ok());
        EXPECT_TRUE(store->PendingComputeSamples(sweep).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(store->PendingComputeSamples(sweep)->empty());
}

TEST_P(ProfileStoreTest, ReadOnlyReadsAndRefusesToWrite) {
  const std::int64_t sweep = *MustOpen()->BeginComputeSweep(Info("h"), ComputeSamples(1));
  auto store = MustOpen(StoreMode::kReadOnly);
  EXPECT_EQ(store->PendingComputeSamples(sweep)->size(), 1u);
  EXPECT_EQ(store->AddComputeMeasurement(sweep, ComputeResult("c0")).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store->BeginCommSweep(Info("x"), CommSamples(1)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// The exit status of `body` run without root's powers, to which permissions do not apply.
int AsNobody(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) _exit(77);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST_F(SqliteStoreTest, ReadOnlyMediaCanBeReadButNotWritten) {
  ASSERT_TRUE(MustOpen()->BeginComputeSweep(Info("h"), ComputeSamples(2)).ok());
  chmod(Path().c_str(), 0444);
  chmod(directory_.c_str(), 0555);
  const int reads = AsNobody([&] {
    const auto store = ProfileStore::Open(Path(), StoreMode::kReadOnly);
    return store.ok() && (*store)->Statistics()->size() == 1;
  });
  const int write_is_refused = AsNobody([&] {
    const Status status = OpenStatus(Path());
    return status.code() == absl::StatusCode::kPermissionDenied &&
           Message(status).find(Path()) != std::string::npos;
  });
  const int create_is_refused = AsNobody([&] {
    return OpenStatus(directory_ + "/new.db").code() == absl::StatusCode::kPermissionDenied;
  });
  chmod(directory_.c_str(), 0755);
  EXPECT_EQ(reads, 0);
  EXPECT_EQ(write_is_refused, 0);
  EXPECT_EQ(create_is_refused, 0);
}

TEST_F(SqliteStoreTest, OpenErrorsSayWhat) {
  EXPECT_THAT(Message(OpenStatus(directory_ + "/no/store.db")), HasSubstr("no directory"));
  EXPECT_EQ(OpenStatus(directory_ + "/absent.db", StoreMode::kReadOnly).code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/absent.db"));
  EXPECT_THAT(Message(OpenStatus(directory_)), HasSubstr("is a directory"));

  const std::string text = directory_ + "/text.db";
  std::ofstream(text) << std::string(5000, 'x');
  EXPECT_THAT(Message(OpenStatus(text)), HasSubstr("is not a profile store"));
  EXPECT_THAT(Message(OpenStatus(text, StoreMode::kReadOnly)), HasSubstr("is not a profile store"));
}

void ExecuteSql(const std::string& path, const std::string& sql) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
}

TEST_F(SqliteStoreTest, AStoreWhoseMakerWasKilledIsEmpty) {
  ExecuteSql(Path(), "PRAGMA journal_mode = WAL");
  ASSERT_GT(std::filesystem::file_size(Path()), 0u);
  const Status status = OpenStatus(Path(), StoreMode::kReadOnly);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(status), HasSubstr("there is no profile store in " + Path() + " yet"));
  MustOpen();
  EXPECT_TRUE(OpenStatus(Path(), StoreMode::kReadOnly).ok());
}

TEST_F(SqliteStoreTest, LeavesForeignAndNewerDatabasesAlone) {
  const std::string foreign = directory_ + "/foreign.db";
  ExecuteSql(foreign, "CREATE TABLE t (x)");
  const auto size = std::filesystem::file_size(foreign);
  EXPECT_THAT(Message(OpenStatus(foreign)), HasSubstr("is not a profile store"));
  EXPECT_EQ(std::filesystem::file_size(foreign), size);

  MustOpen().reset();
  ExecuteSql(Path(), "PRAGMA user_version = 4");
  EXPECT_THAT(Message(OpenStatus(Path())), HasSubstr("version 4, written by a newer program"));
  EXPECT_THAT(Message(OpenStatus(Path(), StoreMode::kReadOnly)), HasSubstr("version 4"));
}

// What the program of version 1 left: its tables, with a sample that is measured and one that is
// not.
std::int64_t MakeVersion1(const std::string& path) {
  auto store = *ProfileStore::Open(path, StoreMode::kReadWrite);
  const std::int64_t sweep = *store->BeginCommSweep(Info("old"), CommSamples(2));
  EXPECT_TRUE(store->AddCommMeasurements(sweep, "m0", CommResults("m0")).ok());
  store.reset();
  ExecuteSql(path,
             "ALTER TABLE comm_samples DROP COLUMN collective;"
             "ALTER TABLE comm_samples DROP COLUMN input_dist;"
             "ALTER TABLE compute_samples DROP COLUMN shard_kernels; PRAGMA user_version = 1");
  return sweep;
}

std::int64_t VersionOf(const std::string& path) {
  sqlite3* database = nullptr;
  sqlite3_stmt* statement = nullptr;
  EXPECT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_prepare_v2(database, "PRAGMA user_version", -1, &statement, nullptr),
            SQLITE_OK);
  EXPECT_EQ(sqlite3_step(statement), SQLITE_ROW);
  const std::int64_t version = sqlite3_column_int64(statement, 0);
  sqlite3_finalize(statement);
  sqlite3_close(database);
  return version;
}

TEST_F(SqliteStoreTest, AStoreOfVersion1IsReadAsItIs) {
  const std::int64_t sweep = MakeVersion1(Path());
  auto reader = MustOpen(StoreMode::kReadOnly);
  const auto records = reader->ReadCommRecords();
  ASSERT_TRUE(records.ok()) << Message(records.status());
  EXPECT_EQ(records->front().sample, MakeCommSample(0));
  EXPECT_THAT(*reader->PendingCommSamples(sweep), testing::ElementsAre(MakeCommSample(1)));
  EXPECT_EQ(VersionOf(Path()), 1);

  // A writer brings it up to date under the reader's eyes.
  auto writer = MustOpen();
  CommSample gather = MakeCommSample(7);
  gather.dim_sums = {8, 8, 8};
  gather.collective = Collective::kAllGather;
  const auto other = writer->BeginCommSweep(Info("new"), {gather});
  ASSERT_TRUE(other.ok()) << Message(other.status());
  EXPECT_THAT(*reader->PendingCommSamples(*other), testing::ElementsAre(gather));
}

TEST_F(SqliteStoreTest, AStoreOfVersion2IsReadAsItIsAndGoesOnAsOneOfToday) {
  auto store = MustOpen();
  ASSERT_TRUE(store->BeginCommSweep(Info("old"), CommSamples(4)).ok());
  auto in_device_memory = ComputeSamples(2);  // all that a store of version 2 knows
  for (auto& sample : in_device_memory) {
    for (auto& shard : sample.shards) {
      shard.compute_kernel = ComputeKernel::kFused;
      shard.cache_load_factor = 0;
    }
  }
  ASSERT_TRUE(store->BeginComputeSweep(Info("old"), in_device_memory).ok());
  store.reset();
  ExecuteSql(Path(),
             "ALTER TABLE comm_samples DROP COLUMN input_dist;"
             "ALTER TABLE compute_samples DROP COLUMN shard_kernels; PRAGMA user_version = 2");
  const auto reader = MustOpen(StoreMode::kReadOnly);
  EXPECT_EQ(*reader->PendingCommSamples(1), CommSamples(4));
  EXPECT_EQ(*reader->PendingComputeSamples(2), in_device_memory);
  EXPECT_EQ(VersionOf(Path()), 2);
  const auto writer = MustOpen();
  EXPECT_EQ(VersionOf(Path()), ProfileStore::kSchemaVersion);
  EXPECT_EQ(*writer->PendingComputeSamples(2), in_device_memory);
}

TEST_F(SqliteStoreTest, AStoreOfVersion1GoesOnAsOneOfToday) {
  const std::int64_t sweep = MakeVersion1(Path());
  auto store = MustOpen();
  EXPECT_EQ(VersionOf(Path()), ProfileStore::kSchemaVersion);
  EXPECT_EQ(*store->BeginCommSweep(Info("old"), CommSamples(2)), sweep);
  EXPECT_EQ(store->ReadCommRecords()->front().sample, MakeCommSample(0));
  EXPECT_TRUE(store->AddCommMeasurements(sweep, "m1", CommResults("m1")).ok());
  EXPECT_EQ(MustOpen()->ReadCommRecords()->size(), 2u);
}

TEST_F(SqliteStoreTest, RowsThatReferToNothingAreDamage) {
  const std::int64_t sweep = *MustOpen()->BeginComputeSweep(Info("h"), ComputeSamples(2));
  EXPECT_GT(sweep, 0);
  EXPECT_TRUE(MustOpen()->CheckIntegrity().ok());
  ExecuteSql(Path(), "DELETE FROM sweeps");
  const Status status = MustOpen()->CheckIntegrity();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr("a row of compute_samples refers to none of sweeps"));
}

TEST_F(SqliteStoreTest, DamagedKernelsAndNumbersOfIdsAreDamage) {
  auto store = MustOpen();
  const std::int64_t compute = *store->BeginComputeSweep(Info("h"), ComputeSamples(3));
  CommSample ids = MakeCommSample(0);
  ids.input_dist = InputDistSample{{1, 0, 2}, {3, 0, 4}, 1, 2.5, false, 7};
  const std::int64_t comm = *store->BeginCommSweep(Info("h"), {ids});
  store.reset();
  for (const char* const kernels :
       {"dense fused fused", "fused_uvm_caching fused fused", "fused_uvm:0.5 fused fused",
        "fused_uvm_caching:nan fused fused", "fused_uvm_caching:1.5 fused fused", "fused_uvm",
        "fused fused fused fused", "best fused fused"}) {
    ExecuteSql(Path(), fmt::format("UPDATE compute_samples SET shard_kernels = '{}' WHERE "
                                   "sample_id = 'c2'",
                                   kernels));
    EXPECT_EQ(MustOpen()->PendingComputeSamples(compute).status().code(),
              absl::StatusCode::kDataLoss)
        << kernels;
  }
  for (const char* const change :
       {"'[1,0,2]', '[1,0]'", "'[1,0,2]', '[1,0,-2]'", "'2.5', '-2.5'", "'7', 'x'"}) {
    ExecuteSql(Path(),
               "CREATE TABLE kept AS SELECT * FROM comm_samples;"
               "UPDATE comm_samples SET input_dist = replace(input_dist, " +
                   std::string(change) + ")");
    EXPECT_EQ(MustOpen()->PendingCommSamples(comm).status().code(), absl::StatusCode::kDataLoss)
        << change;
    ExecuteSql(Path(),
               "UPDATE comm_samples SET input_dist = (SELECT input_dist FROM kept);"
               "DROP TABLE kept");
  }
  EXPECT_TRUE(MustOpen()->PendingCommSamples(comm).ok());
}

TEST_F(SqliteStoreTest, DamageIsAnErrorNotACrash) {
  {
    auto store = MustOpen();
    const std::int64_t sweep = *store->BeginComputeSweep(Info("h"), ComputeSamples(200));
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(store->AddComputeMeasurement(sweep, ComputeResult("c" + std::to_string(i))).ok());
    }
  }
  EXPECT_TRUE(MustOpen()->CheckIntegrity().ok());
  const auto size = std::filesystem::file_size(Path());
  ASSERT_GT(size, 40'000u);
  std::string noise(static_cast<std::size_t>(size - 4096), '\0');
  for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>(i * 131 + i / 7);
  std::fstream file(Path(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096);
  file.write(noise.data(), static_cast<std::streamsize>(noise.size()));
  file.close();

  const auto store = ProfileStore::Open(Path(), StoreMode::kReadOnly);
  const Status status = store.ok() ? (*store)->ReadComputeRecords().status() : store.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << Message(status);
  EXPECT_THAT(Message(status), HasSubstr(Path()));
}

}  // namespace
}  // namespace neuroshard
