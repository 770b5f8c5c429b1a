// What only a store in a file has: versions, damage, permissions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "common/store/row_columns.h"
#include "common/store/testing/sqlite_store_fixture.h"
#include "common/store/testing/test_samples.h"

namespace neuroshard {
namespace {

using ::testing::HasSubstr;

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
  ASSERT_TRUE(MustOpen()->BeginSweep<ComputeSample>(Info("h"), ComputeSamples(2)).ok());
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
  EXPECT_THAT(Message(status), HasSubstr("a copy of a store in use without its -wal file"));
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
  ExecuteSql(Path(), "PRAGMA user_version = 6");
  EXPECT_THAT(Message(OpenStatus(Path())), HasSubstr("version 6, written by a newer program"));
  EXPECT_THAT(Message(OpenStatus(Path(), StoreMode::kReadOnly)), HasSubstr("version 6"));
}

// What the program of version 1 left: its tables, with a sample that is measured and one that is
// not.
std::int64_t MakeVersion1(const std::string& path) {
  auto store = *ProfileStore::Open(path, StoreMode::kReadWrite);
  const std::int64_t sweep = *store->BeginSweep<CommSample>(Info("old"), CommSamples(2));
  EXPECT_TRUE(store->AddCommMeasurements(sweep, "m0", CommResults("m0")).ok());
  store.reset();
  ExecuteSql(path,
             "ALTER TABLE comm_samples DROP COLUMN collective;"
             "ALTER TABLE comm_samples DROP COLUMN input_dist;"
             "ALTER TABLE comm_samples DROP COLUMN wire_dtype;"
             "ALTER TABLE comm_samples DROP COLUMN cadence;"
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
  const auto records = reader->ReadRecords<CommRecord>();
  ASSERT_TRUE(records.ok()) << Message(records.status());
  EXPECT_EQ(records->front().sample, MakeCommSample(0));
  EXPECT_THAT(*reader->PendingSamples<CommSample>(sweep),
              ::testing::ElementsAre(MakeCommSample(1)));
  EXPECT_EQ(VersionOf(Path()), 1);

  // A writer brings it up to date under the reader's eyes.
  auto writer = MustOpen();
  CommSample gather = MakeCommSample(7);
  gather.dim_sums = {8, 8, 8};
  gather.collective = Collective::kAllGather;
  const auto other = writer->BeginSweep<CommSample>(Info("new"), {gather});
  ASSERT_TRUE(other.ok()) << Message(other.status());
  EXPECT_THAT(*reader->PendingSamples<CommSample>(*other), ::testing::ElementsAre(gather));
}

TEST_F(SqliteStoreTest, AStoreOfVersion4IsReadAsItIsAndGoesOnAsOneOfToday) {
  const std::vector<CommSample> old = CommSamples(5);
  {
    const auto store = MustOpen();
    ASSERT_TRUE(store->BeginSweep<CommSample>(Info("old"), old).ok());
    ASSERT_TRUE(store->AddCommMeasurements(1, "m2", CommResults("m2")).ok());
  }
  ExecuteSql(Path(), "ALTER TABLE comm_samples DROP COLUMN cadence; PRAGMA user_version = 4");
  const auto reader = MustOpen(StoreMode::kReadOnly);
  EXPECT_EQ(reader->ReadRecords<CommRecord>()->front().sample, old[2]);
  EXPECT_EQ(VersionOf(Path()), 4);
  const auto writer = MustOpen();
  EXPECT_EQ(VersionOf(Path()), ProfileStore::kSchemaVersion);
  EXPECT_EQ(writer->ReadRecords<CommRecord>()->front().sample, old[2]);
  CommSample in_rows = MakeCommSample(5);
  ASSERT_EQ(in_rows.cadence, Cadence::kBackToBack);
  ASSERT_TRUE(writer->BeginSweep<CommSample>(Info("new"), {in_rows}).ok());
  EXPECT_THAT(*reader->PendingSamples<CommSample>(2), ::testing::ElementsAre(in_rows));
}

// Samples that a store of before there were casts knows.
std::vector<CommSample> SamplesWithoutCasts(int n) {
  std::vector<CommSample> samples = CommSamples(n);
  std::erase_if(samples,
                [](const CommSample& s) { return s.casts() || s.cadence != Cadence::kBarrier; });
  return samples;
}

TEST_F(SqliteStoreTest, AStoreOfVersion3IsReadAsItIsAndGoesOnAsOneOfToday) {
  const std::vector<CommSample> old = SamplesWithoutCasts(6);
  ASSERT_TRUE(MustOpen()->BeginSweep<CommSample>(Info("old"), old).ok());
  ExecuteSql(Path(),
             "ALTER TABLE comm_samples DROP COLUMN wire_dtype;"
             "ALTER TABLE comm_samples DROP COLUMN cadence; PRAGMA user_version = 3");
  const auto reader = MustOpen(StoreMode::kReadOnly);
  EXPECT_EQ(*reader->PendingSamples<CommSample>(1), old);
  EXPECT_EQ(VersionOf(Path()), 3);
  const auto writer = MustOpen();
  EXPECT_EQ(VersionOf(Path()), ProfileStore::kSchemaVersion);
  EXPECT_EQ(*writer->PendingSamples<CommSample>(1), old);
}

TEST_F(SqliteStoreTest, AStoreOfVersion2IsReadAsItIsAndGoesOnAsOneOfToday) {
  auto store = MustOpen();
  const std::vector<CommSample> old = SamplesWithoutCasts(4);
  ASSERT_TRUE(store->BeginSweep<CommSample>(Info("old"), old).ok());
  auto in_device_memory = ComputeSamples(2);  // all that a store of version 2 knows
  for (auto& sample : in_device_memory) {
    for (auto& shard : sample.shards) {
      shard.compute_kernel = ComputeKernel::kFused;
      shard.cache_load_factor = 0;
    }
  }
  ASSERT_TRUE(store->BeginSweep<ComputeSample>(Info("old"), in_device_memory).ok());
  store.reset();
  ExecuteSql(Path(),
             "ALTER TABLE comm_samples DROP COLUMN input_dist;"
             "ALTER TABLE comm_samples DROP COLUMN wire_dtype;"
             "ALTER TABLE comm_samples DROP COLUMN cadence;"
             "ALTER TABLE compute_samples DROP COLUMN shard_kernels; PRAGMA user_version = 2");
  const auto reader = MustOpen(StoreMode::kReadOnly);
  EXPECT_EQ(*reader->PendingSamples<CommSample>(1), old);
  EXPECT_EQ(*reader->PendingSamples<ComputeSample>(2), in_device_memory);
  EXPECT_EQ(VersionOf(Path()), 2);
  const auto writer = MustOpen();
  EXPECT_EQ(VersionOf(Path()), ProfileStore::kSchemaVersion);
  EXPECT_EQ(*writer->PendingSamples<ComputeSample>(2), in_device_memory);
}

TEST_F(SqliteStoreTest, AStoreOfVersion1GoesOnAsOneOfToday) {
  const std::int64_t sweep = MakeVersion1(Path());
  auto store = MustOpen();
  EXPECT_EQ(VersionOf(Path()), ProfileStore::kSchemaVersion);
  EXPECT_EQ(*store->BeginSweep<CommSample>(Info("old"), CommSamples(2)), sweep);
  EXPECT_EQ(store->ReadRecords<CommRecord>()->front().sample, MakeCommSample(0));
  EXPECT_TRUE(store->AddCommMeasurements(sweep, "m1", CommResults("m1")).ok());
  EXPECT_EQ(MustOpen()->ReadRecords<CommRecord>()->size(), 2u);
}

TEST_F(SqliteStoreTest, RowsThatReferToNothingAreDamage) {
  const std::int64_t sweep = *MustOpen()->BeginSweep<ComputeSample>(Info("h"), ComputeSamples(2));
  EXPECT_GT(sweep, 0);
  EXPECT_TRUE(MustOpen()->CheckIntegrity().ok());
  ExecuteSql(Path(), "DELETE FROM sweeps");
  const Status status = MustOpen()->CheckIntegrity();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr("a row of compute_samples refers to none of sweeps"));
}

TEST_F(SqliteStoreTest, DamagedKernelsAndNumbersOfIdsAreDamage) {
  auto store = MustOpen();
  const std::int64_t compute = *store->BeginSweep<ComputeSample>(Info("h"), ComputeSamples(3));
  CommSample ids = MakeCommSample(0);
  ids.input_dist = InputDistSample{{1, 0, 2}, {3, 0, 4}, 1, 2.5, false, 7};
  const std::int64_t comm = *store->BeginSweep<CommSample>(Info("h"), {ids});
  store.reset();
  for (const char* const kernels :
       {"dense fused fused", "fused_uvm_caching fused fused", "fused_uvm:0.5 fused fused",
        "fused_uvm_caching:nan fused fused", "fused_uvm_caching:1.5 fused fused", "fused_uvm",
        "fused fused fused fused", "best fused fused"}) {
    ExecuteSql(Path(), fmt::format("UPDATE compute_samples SET shard_kernels = '{}' WHERE "
                                   "sample_id = 'c2'",
                                   kernels));
    EXPECT_EQ(MustOpen()->PendingSamples<ComputeSample>(compute).status().code(),
              absl::StatusCode::kDataLoss)
        << kernels;
  }
  for (const char* const change : {"'[1,0,2]', '[1,0]'", "'[1,0,2]', '[1,0,-2]'", "'2.5', '-2.5'",
                                   "'7', 'x'", "'7', '1e300'", "'7', '7.5'"}) {
    ExecuteSql(Path(),
               "CREATE TABLE kept AS SELECT * FROM comm_samples;"
               "UPDATE comm_samples SET input_dist = replace(input_dist, " +
                   std::string(change) + ")");
    EXPECT_EQ(MustOpen()->PendingSamples<CommSample>(comm).status().code(),
              absl::StatusCode::kDataLoss)
        << change;
    ExecuteSql(Path(),
               "UPDATE comm_samples SET input_dist = (SELECT input_dist FROM kept);"
               "DROP TABLE kept");
  }
  EXPECT_TRUE(MustOpen()->PendingSamples<CommSample>(comm).ok());
}

// Environments are told apart by their text, and a record is found again by that of its series.
TEST(RowTextTest, IsWhatItWasInStoresOfBefore) {
  EXPECT_EQ(ToRowText(Series(1)),
            R"({"median_ms":1.0,"relative_spread":0.2,"samples_ms":[1.0,1.1,0.9],)"
            R"("stop_reason":"max_time","warmup_iterations":3})");
  EXPECT_EQ(ToRowText(Environment(1234)),
            R"({"backend":"neuroshard-cpu","device":"CPU ™","git_commit":"abc",)"
            R"("hostname":"host","properties":{"os":"Debian"},"worker_version":"1.0"})");
  EXPECT_EQ(ToRowText(InputDistSample{{1, 0, 2}, {3, 0, 4}, 1, 2.5, false, 7}),
            R"({"cut_features":1,"cut_ids":2.5,"seed":7,"weighted":false,)"
            R"("whole_features":[1,0,2],"whole_ids":[3.0,0.0,4.0]})");
}

TEST_F(SqliteStoreTest, DamageIsAnErrorNotACrash) {
  {
    auto store = MustOpen();
    const std::int64_t sweep = *store->BeginSweep<ComputeSample>(Info("h"), ComputeSamples(200));
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
  const Status status =
      store.ok() ? (*store)->ReadRecords<ComputeRecord>().status() : store.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << Message(status);
  EXPECT_THAT(Message(status), HasSubstr(Path()));
}

}  // namespace
}  // namespace neuroshard
