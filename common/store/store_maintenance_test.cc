#include "common/store/store_maintenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "common/store/sql_database.h"
#include "common/store/testing/test_database.h"
#include "common/store/testing/test_samples.h"

namespace neuroshard {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

void Ignore() {}

// From one kind into another.
class StoreMaintenanceTest : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    name_ = "keep_" + std::to_string(getpid());
    for (const char c :
         std::string(testing::UnitTest::GetInstance()->current_test_info()->name())) {
      name_ += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
    }
    // PostgreSQL's names are short.
    name_ = name_.substr(0, 18) + std::to_string(std::hash<std::string>()(name_) % 1'000'000'000);
    directory_ = testing::TempDir() + name_;
    std::filesystem::create_directories(directory_);
    from_ = *ProfileStore::Open(Place(std::get<0>(GetParam()), "from"), StoreMode::kReadWrite);
    Fill(*from_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Place(std::string_view kind, const std::string& what) const {
    if (kind == "sqlite") return directory_ + "/" + what + ".db";
    return TestDatabase(name_ + what).address();
  }
  std::unique_ptr<ProfileStore> OpenTarget() const {
    return *ProfileStore::Open(Place(std::get<1>(GetParam()), "to"), StoreMode::kReadWrite);
  }

  // A sweep of each kind with records, gaps and an out of memory, and an import.
  static void Fill(ProfileStore& store) {
    const std::int64_t sweep = *store.BeginSweep<ComputeSample>(Info("c"), ComputeSamples(700));
    for (int i = 0; i < 40; ++i) {
      ComputeMeasurement result =
          ComputeResult("c" + std::to_string(i), i == 7 ? Outcome::kOutOfMemory : Outcome::kOk);
      result.environment.hostname = i < 10 ? "old-host" : "new-host";
      result.environment.measured_at_unix_ms = 1000 + i;
      result.environment.properties[std::string(kDistinctBatchesProperty)] = std::to_string(i);
      ASSERT_TRUE(store.AddComputeMeasurement(sweep, result).ok());
    }
    const std::int64_t comm = *store.BeginSweep<CommSample>(Info("m"), CommSamples(4));
    for (const char* id : {"m0", "m2"}) {
      ASSERT_TRUE(store.AddCommMeasurements(comm, id, CommResults(id)).ok());
    }
    std::vector<ComputeRecord> costs(1);
    costs[0].sample = MakeComputeSample(0);
    costs[0].total_ms = 1.5;
    ASSERT_TRUE(store.ImportCosts<ComputeRecord>(Info("imported"), costs).ok());
  }

  static void ExpectSame(const ProfileStore& a, const ProfileStore& b) {
    const std::vector<SweepStatistics> statistics = *a.Statistics();
    const std::vector<SweepStatistics> copies_of = *b.Statistics();
    ASSERT_EQ(copies_of.size(), statistics.size());
    for (std::size_t i = 0; i < statistics.size(); ++i) {
      const SweepStatistics& copied = copies_of[i];
      EXPECT_EQ(copied.config_hash, statistics[i].config_hash);
      EXPECT_EQ(copied.ok, statistics[i].ok);
      EXPECT_EQ(copied.out_of_memory, statistics[i].out_of_memory);
      EXPECT_EQ(copied.pending(), statistics[i].pending());
      EXPECT_EQ(copied.imported, statistics[i].imported);
    }
    const auto records = *a.ReadRecords<ComputeRecord>();
    const auto copies = *b.ReadRecords<ComputeRecord>();
    ASSERT_EQ(copies.size(), records.size());
    for (std::size_t i = 0; i < records.size(); ++i) {
      EXPECT_EQ(copies[i].sample, records[i].sample);
      EXPECT_EQ(copies[i].total_ms, records[i].total_ms);
      EXPECT_EQ(copies[i].environment, records[i].environment);
    }
    ASSERT_EQ(b.ReadRecords<CommRecord>()->size(), a.ReadRecords<CommRecord>()->size());
    EXPECT_EQ(b.ReadRecords<CommRecord>()->back().environments,
              a.ReadRecords<CommRecord>()->back().environments);
    EXPECT_THAT(*FindStoreFaults(b), IsEmpty());
  }

  std::string name_;
  std::string directory_;
  std::unique_ptr<ProfileStore> from_;
};

std::vector<std::string> AllKinds() {
  std::vector<std::string> kinds = {"sqlite"};
  if (TestDatabase::Available()) kinds.push_back("postgresql");
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(Kinds, StoreMaintenanceTest,
                         testing::Combine(testing::ValuesIn(AllKinds()),
                                          testing::ValuesIn(AllKinds())),
                         [](const auto& kinds) {
                           return std::get<0>(kinds.param) + "_to_" + std::get<1>(kinds.param);
                         });

TEST_P(StoreMaintenanceTest, ACopyIsTheSameAndCopyingAgainCopiesNothing) {
  const auto to = OpenTarget();
  int heard = 0;
  const auto report = CopyStore(*from_, *to, [&] { ++heard; });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->sweeps, 3);
  EXPECT_EQ(report->copied, 43);
  EXPECT_EQ(report->already_there, 0);
  EXPECT_EQ(heard, 43);
  ExpectSame(*from_, *to);

  EXPECT_EQ(CopyStore(*from_, *to, Ignore)->copied, 0);
  ExpectSame(*from_, *to);
  EXPECT_EQ(CopyStore(*from_, *from_, Ignore).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(StoreMaintenanceTest, AMergeKeepsWhatIsThereAndFillsGaps) {
  const auto to = OpenTarget();
  const std::int64_t sweep = *to->BeginSweep<ComputeSample>(Info("c"), ComputeSamples(700));
  for (const char* id : {"c39", "c600"}) {
    ComputeMeasurement own = ComputeResult(id);
    own.forward.median_ms = 77;
    ASSERT_TRUE(to->AddComputeMeasurement(sweep, own).ok());
  }
  const auto report = CopyStore(*from_, *to, Ignore);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->copied, 42);  // 39 of 40 of the sweep, two collectives, and the import
  EXPECT_EQ(to->PendingSamples<ComputeSample>(sweep)->size(), 700u - 41u);
  EXPECT_EQ(to->ReadRecords<ComputeRecord>()->at(38).forward_ms, 77);

  const auto other = *ProfileStore::Open(directory_ + "/other.db", StoreMode::kReadWrite);
  ASSERT_TRUE(other->BeginSweep<ComputeSample>(Info("c"), ComputeSamples(3)).ok());
  EXPECT_EQ(CopyStore(*other, *to, Ignore).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(StoreMaintenanceTest, ABackupOfALiveStoreIsWhole) {
  const std::string path = directory_ + "/backup.db";
  const Status made = BackUpStore(*from_, path, Ignore);
  ASSERT_TRUE(made.ok()) << made;
  EXPECT_FALSE(std::filesystem::exists(path + "-wal"));
  ExpectSame(*from_, **ProfileStore::Open(path, StoreMode::kReadOnly));
  EXPECT_EQ(BackUpStore(*from_, path, Ignore).code(), absl::StatusCode::kAlreadyExists);
  const std::string nowhere = directory_ + "/no/backup.db";
  EXPECT_THAT(Message(BackUpStore(*from_, nowhere, Ignore)),
              AnyOf(StartsWith(nowhere + ": "), HasSubstr("cannot create " + nowhere)));
}

TEST_P(StoreMaintenanceTest, TellsWhatIsInIt) {
  const auto content = DescribeStore(*from_);
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_GT(content->bytes, 10'000);
  std::int64_t old_records = 0;
  std::int64_t comm = 0;
  EXPECT_EQ(content->environments.size(), 3U) << "what one record has is no other environment";
  for (const EnvironmentUse& use : content->environments) {
    comm += use.comm_records;
    if (use.environment.hostname != "old-host") continue;
    old_records += use.compute_records;
    EXPECT_EQ(use.first_unix_ms, 1000);
    EXPECT_EQ(use.last_unix_ms, 1009);
  }
  EXPECT_EQ(old_records, 10);
  EXPECT_EQ(comm, 6);
}

TEST_P(StoreMaintenanceTest, AnEnvironmentIsNamedByWholeWordsOrAProperty) {
  const auto environments = DescribeStore(*from_)->environments;
  const auto matching = [&](const std::string& environment) {
    return PruneStore(*from_, {std::nullopt, environment}, true)->records;
  };
  ASSERT_EQ(matching("old-host"), 10);
  for (const char* part : {"old", "ol", "old-hos", "hostname", "worker_version"}) {
    EXPECT_EQ(matching(part), 0) << part;
  }
  const auto& [key, value] = *environments.front().environment.properties.begin();
  EXPECT_GT(matching(key + "=" + value), 0);
  EXPECT_EQ(matching(key + "=" + value + "x"), 0);
}

TEST_P(StoreMaintenanceTest, PrunesByAgeAndEnvironmentWhenTold) {
  const PruneRule old_host{1005, "old-host"};
  EXPECT_EQ(PruneStore(*from_, {}, true).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PruneStore(*from_, old_host, true)->records, 5);
  EXPECT_EQ(from_->ReadRecords<ComputeRecord>()->size(), 40u);  // 39 that are ok, and the import

  const auto pruned = PruneStore(*from_, old_host, false);
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_EQ(pruned->records, 5);
  EXPECT_EQ(pruned->sweeps, 0);
  EXPECT_EQ(from_->ReadRecords<ComputeRecord>()->size(), 35u);
  EXPECT_EQ(from_->Statistics()->at(0).pending(), 665);

  // What remains, but for the import: two sweeps lose all.
  const auto rest = PruneStore(*from_, {100'000, ""}, false);
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(rest->records, 35 + 2);
  EXPECT_EQ(rest->sweeps, 2);
  ASSERT_EQ(from_->Statistics()->size(), 1u);
  EXPECT_TRUE(from_->Statistics()->front().imported);
  EXPECT_THAT(*FindStoreFaults(*from_), IsEmpty());
}

// What is wrong inside rows that the database itself finds nothing wrong with.
TEST_P(StoreMaintenanceTest, VerifyFindsWhatDoesNotFit) {
  const auto damage = [&](const std::string& sql) {
    const MutexLock lock(from_->database().mutex());
    ASSERT_TRUE(from_->database().Execute(sql).ok());
  };
  EXPECT_THAT(*FindStoreFaults(*from_), IsEmpty());
  damage("UPDATE compute_measurements SET forward_ms = 5 WHERE measured_at_unix_ms = 1003");
  EXPECT_THAT(*FindStoreFaults(*from_),
              ElementsAre(HasSubstr("sample c3: the forward cost is 5 ms"),
                          HasSubstr("sample c3: the total is not the sum")));
  damage("UPDATE compute_measurements SET forward_series = '{' WHERE measured_at_unix_ms = 1003");
  EXPECT_THAT(FindStoreFaults(*from_)->front(), HasSubstr("sample c3: a stored value is damaged"));
  damage("DELETE FROM compute_measurements WHERE measured_at_unix_ms = 1003");
  damage("DELETE FROM comm_measurements WHERE rank = 1");
  EXPECT_THAT(*FindStoreFaults(*from_), ElementsAre(HasSubstr("m0: has records of 2 of 3 ranks"),
                                                    HasSubstr("m2: has records of 2 of 3 ranks")));
}

}  // namespace
}  // namespace neuroshard
