// `neuroshard store` on files; common/store tests what it does in databases of each kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>

#include "client/cli/store_records_csv.h"
#include "client/cli/testing/command_line_fixture.h"
#include "common/store/sql_database.h"
#include "common/store/testing/test_samples.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using testing::CommandLineTest;
using ::testing::HasSubstr;
using ::testing::Not;

class StoreCommandTest : public CommandLineTest {
 protected:
  StoreCommandTest() {
    store_ = (folder_ / "store.db").string();
    copy_ = (folder_ / "copy.db").string();
    const auto store = *ProfileStore::Open(store_, StoreMode::kReadWrite);
    const std::int64_t sweep = *store->BeginSweep<ComputeSample>(Info("h"), ComputeSamples(3));
    EXPECT_TRUE(store->AddComputeMeasurement(sweep, ComputeResult("c0")).ok());
    EXPECT_TRUE(store->AddComputeMeasurement(sweep, ComputeResult("c1")).ok());
    const std::int64_t comm = *store->BeginSweep<CommSample>(Info("h"), CommSamples(1));
    EXPECT_TRUE(store->AddCommMeasurements(comm, "m0", CommResults("m0")).ok());
  }

  std::string store_;
  std::string copy_;
};

TEST_F(StoreCommandTest, InfoSaysWhatIsInItAndThatCpIsNoBackup) {
  ASSERT_EQ(Run({"store", "info", "--store", store_}), 0) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("2 sweeps, 3 measured samples, 1 environments"),
                          HasSubstr("neuroshard-cpu"), HasSubstr("host"), HasSubstr("1970-01-01"),
                          HasSubstr("neuroshard store backup")));
  ASSERT_EQ(Run({"store", "info", "--store", store_, "--format", "json"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("\"pending\": 1"));
  EXPECT_EQ(Run({"store", "info", "--store", copy_}), 1);
  EXPECT_FALSE(std::filesystem::exists(copy_));
}

TEST_F(StoreCommandTest, CopiesOnceAndBacksUpIntoNewFilesOnly) {
  ASSERT_EQ(Run({"store", "copy", "--store", store_, copy_}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("2 sweeps, 3 records copied, 0 already there"));
  ASSERT_EQ(Run({"store", "copy", "--store", store_, copy_, "--format", "json"}), 0) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("\"copied\": 0"), HasSubstr("\"already_there\": 3")));
  EXPECT_EQ(Run({"store", "backup", "--store", store_, copy_}), 1);
  EXPECT_THAT(err_, HasSubstr("overwrites nothing"));
  EXPECT_EQ(Run({"store", "backup", "--store", store_, copy_ + "2"}), 0) << err_;
  EXPECT_EQ(Run({"store", "verify", "--store", copy_ + "2"}), 0) << out_;
  EXPECT_THAT(out_, HasSubstr("is whole"));
}

TEST_F(StoreCommandTest, VerifyExitsWith1AndNamesTheFault) {
  {
    const auto store = *ProfileStore::Open(store_, StoreMode::kReadWrite);
    const MutexLock lock(store->database().mutex());
    ASSERT_TRUE(store->database().Execute("UPDATE compute_measurements SET forward_ms = 9").ok());
  }
  EXPECT_EQ(Run({"store", "verify", "--store", store_}), 1);
  EXPECT_THAT(out_, HasSubstr("sample c0: the forward cost is 9 ms"));
  EXPECT_EQ(Run({"store", "verify", "--store", store_, "--format", "json"}), 1);
  EXPECT_THAT(out_, HasSubstr("\"whole\": false"));
}

TEST_F(StoreCommandTest, PruneRemovesOnlyWhenTold) {
  EXPECT_EQ(Run({"store", "prune", "--store", store_}), 2);
  ASSERT_EQ(Run({"store", "prune", "--store", store_, "--older-than-days", "1"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("would remove 3 records from " + store_ +
                              ", with them 2 sweeps; --apply does it"));
  ASSERT_EQ(Run({"store", "prune", "--store", store_, "--environment", "no-such-host"}), 0);
  EXPECT_THAT(out_, HasSubstr("would remove 0 records"));
  std::vector<std::string> apply = {"store", "prune",  "--store", store_, "--older-than-days",
                                    "1",     "--apply"};
  err_is_terminal_ = true;
  EXPECT_EQ(Run(apply), 1);
  EXPECT_THAT(err_, HasSubstr("would remove 3 records from " + store_ +
                              ", with them 2 sweeps; --yes does it"));
  apply.push_back("--yes");
  ASSERT_EQ(Run(apply), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("removed 3 records from " + store_ + ", with them 2 sweeps"));
  ASSERT_EQ(Run({"store", "info", "--store", store_}), 0);
  EXPECT_THAT(out_, HasSubstr("0 sweeps, 0 measured samples"));
}

TEST_F(StoreCommandTest, ExportsALineASampleOrRank) {
  ASSERT_EQ(Run({"store", "export", "--store", store_}), 0) << err_;
  EXPECT_EQ(std::count(out_.begin(), out_.end(), '\n'), 3);
  EXPECT_THAT(out_, AllOf(HasSubstr("sample_id,batch_size"), HasSubstr("\nc1,512,rowwise_adagrad,"),
                          HasSubstr("\"[{\"\"table\"\":\"\"table_0\"\""), HasSubstr(",0.1,0.2,")));
  ASSERT_EQ(Run({"store", "export", "--store", store_, "--kind", "comm"}), 0) << err_;
  EXPECT_EQ(std::count(out_.begin(), out_.end(), '\n'), 4);
  EXPECT_THAT(out_, HasSubstr("\nm0,2,3,forward,all_to_all,768,4,128,2.5,3,0,host,"));
}

TEST(RecordsAsCsvTest, ADistributionOfIdsHasItsOwnFieldsAndNoneOfCollectives) {
  CommRecord record;
  record.sample = MakeCommSample(0);
  record.sample.input_dist = InputDistSample{{1, 0, 2}, {3.5, 0, 4}, 5, 2.5, true, 7};
  record.cost_ms = {1, 2, 3};
  record.imported = true;
  const std::string csv = RecordsAsCsv({record});
  EXPECT_THAT(
      csv, AllOf(HasSubstr(",dim_sum,start_offset_ms,cost_ms,imported,"),
                 HasSubstr(",whole_features,whole_ids,cut_features,cut_ids,weighted,wire_dtype,"
                           "cadence,network_interface,network_address,network\n"),
                 HasSubstr("\nm0,2,3,,input_dist,768,,,2.5,3,1,,,,,,,,2,4,5,2.5,1,,barrier,,,\n")));
  std::istringstream lines(csv);
  std::string header;
  std::string line;
  std::getline(lines, header);
  std::getline(lines, line);
  EXPECT_EQ(std::count(header.begin(), header.end(), ','),
            std::count(line.begin(), line.end(), ','));
}

TEST_F(StoreCommandTest, SaysOverWhatRanksMetAndInWhatCadence) {
  ASSERT_EQ(Run({"store", "info", "--store", store_}), 0) << err_;
  EXPECT_THAT(out_, AllOf(Not(HasSubstr("network")), Not(HasSubstr("cadence"))));
  {
    const auto store = ProfileStore::Open(store_, StoreMode::kReadWrite);
    CommSample sample = MakeCommSample(1);
    sample.cadence = Cadence::kBackToBack;
    const auto sweep = (*store)->BeginSweep<CommSample>({"rows", "of rows", ""}, {sample});
    auto records = CommResults("m1");
    for (CommMeasurement& record : records) {
      record.environment.properties.insert({{"cadence", "back_to_back"},
                                            {"network_interface", "eth0"},
                                            {"network_address", "10.0.0.7"},
                                            {"network", "10.0.0.0/24"}});
    }
    ASSERT_TRUE((*store)->AddCommMeasurements(*sweep, "m1", records).ok());
  }
  ASSERT_EQ(Run({"store", "info", "--store", store_}), 0) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("eth0 10.0.0.0/24  back_to_back"), HasSubstr("  barrier")));
  ASSERT_EQ(Run({"store", "export", "--store", store_, "--kind", "comm"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr(",fp32,back_to_back,eth0,10.0.0.7,10.0.0.0/24\n"));
}

TEST_F(StoreCommandTest, WhoWantsParquetLearnsWhoWritesIt) {
  EXPECT_EQ(Run({"store", "export", "--store", store_, "--format", "csv"}), 0) << err_;
  EXPECT_EQ(Run({"store", "export", "--store", store_, "--format", "parquet"}), 2);
  EXPECT_THAT(err_, AllOf(HasSubstr("--format: parquet"), HasSubstr("neuroshard[parquet]"),
                          HasSubstr("neuroshard-parquet --store S --out FILE")));
  EXPECT_EQ(Run({"store", "export", "--store", store_, "--format", "xml"}), 2);
  EXPECT_THAT(err_, HasSubstr("--format: \"xml\" is not csv"));
}

}  // namespace
}  // namespace neuroshard
