#include "server/pretrain/data/cost_data_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace neuroshard {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CostDataImportTest : public ::testing::Test {
 protected:
  CostDataImportTest()
      : folder_(fs::path(::testing::TempDir()) /
                fmt::format("import-{}-{}", ::getpid(),
                            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "compute");
    fs::create_directories(folder_ / "comm");
    nlohmann::json tables = nlohmann::json::array();
    for (int id = 0; id < 3; ++id) {
      nlohmann::json table = {{"row", 1000 * (id + 1)}, {"dim", 4 << id}, {"pooling_factor", 2.5}};
      for (int bin = 0; bin < kReuseBins; ++bin) {
        table["bin_" + std::to_string(bin)] = bin == id ? 1.0 : 0.0;
      }
      tables.push_back(table);
    }
    Write("compute/table_configs.json", tables.dump());
    Write("compute/data.txt",
          "0,2 1.5\n"
          "1 0.25\n"
          "not a line\n"
          "\n"
          "7 1.0\n"
          "task: 2,1 | cost: 3.5\n"
          "1 0.25\n");
    Write("comm/data.txt", "64,32 0,3 1.5,1.25 2.5,2.25\n64,32 0,3 1.5\n");
    store_ = *ProfileStore::Open((folder_ / "store.db").string(), StoreMode::kReadWrite);
    source_ = {(folder_ / "compute").string(), (folder_ / "comm").string(), 65536};
  }
  ~CostDataImportTest() override { fs::remove_all(folder_); }

  StatusOr<CostData> Import() {
    NS_ASSIGN_OR_RETURN(CostData data, ReadCostData(source_));
    NS_RETURN_IF_ERROR(ImportCostData(data, store_.get()));
    return data;
  }

  void Write(const std::string& name, const std::string& text,
             std::ios::openmode mode = std::ios::trunc) {
    std::ofstream(folder_ / name, mode) << text;
  }

  fs::path folder_;
  std::unique_ptr<ProfileStore> store_;
  CostDataSource source_;
};

TEST_F(CostDataImportTest, GoodLinesBecomeRecordsAndOthersAreCounted) {
  const auto report = Import();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->compute_count->lines, 6);
  EXPECT_EQ(report->compute_count->imported, 4);
  EXPECT_EQ(report->compute_count->malformed, 2);
  EXPECT_THAT(report->compute_count->first_malformed, ElementsAre(3, 5));
  EXPECT_EQ(report->comm_count->lines, 2);
  EXPECT_EQ(report->comm_count->imported, 2);
  EXPECT_THAT(report->comm_count->first_malformed, ElementsAre(2));

  const auto compute = *store_->ReadRecords<ComputeRecord>();
  ASSERT_EQ(compute.size(), 4u);
  EXPECT_EQ(compute[0].total_ms, 1.5);
  EXPECT_TRUE(std::isnan(compute[0].forward_ms));
  EXPECT_TRUE(compute[0].imported);
  ASSERT_EQ(compute[0].sample.shards.size(), 2u);
  EXPECT_EQ(compute[0].sample.batch_size, 65536);
  EXPECT_EQ(compute[0].sample.shards[1].rows, 3000);
  EXPECT_EQ(compute[0].sample.shards[1].cols, 16);
  EXPECT_EQ(compute[0].sample.shards[1].reuse_histogram[2], 1.0);
  EXPECT_EQ(compute[2].total_ms, 3.5);

  const auto comm = *store_->ReadRecords<CommRecord>();
  ASSERT_EQ(comm.size(), 2u);
  EXPECT_EQ(comm[0].sample.direction, CommDirection::kBackward);
  EXPECT_THAT(comm[0].cost_ms, ElementsAre(2.5, 2.25));
  EXPECT_EQ(comm[1].sample.direction, CommDirection::kForward);
  EXPECT_THAT(comm[1].sample.start_offsets_ms, ElementsAre(0, 3));
  EXPECT_THAT(comm[1].cost_ms, ElementsAre(1.5, 1.25));
}

TEST_F(CostDataImportTest, TheSameDataAgainAddsNothing) {
  ASSERT_TRUE(Import().ok());
  const auto again = Import();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->compute_count->imported, 0);
  EXPECT_EQ(again->compute_count->already_there, 4);
  EXPECT_EQ(again->comm_count->imported, 0);
  EXPECT_EQ(store_->ReadRecords<ComputeRecord>()->size(), 4u);
  EXPECT_EQ(store_->ReadRecords<CommRecord>()->size(), 2u);
}

TEST_F(CostDataImportTest, GrownDataAddsWhatIsNew) {
  ASSERT_TRUE(Import().ok());
  Write("compute/data.txt", "1 0.25\n0 9\n", std::ios::app);
  const auto grown = Import();
  ASSERT_TRUE(grown.ok()) << grown.status();
  EXPECT_EQ(grown->compute_count->imported, 2);
  EXPECT_EQ(store_->ReadRecords<ComputeRecord>()->size(), 6u);
}

TEST_F(CostDataImportTest, EitherFolderMayBeMissing) {
  source_.compute_directory.reset();
  const auto report = Import();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->compute_count.has_value());
  EXPECT_EQ(store_->ReadRecords<ComputeRecord>()->size(), 0u);
  EXPECT_EQ(store_->ReadRecords<CommRecord>()->size(), 2u);
}

TEST_F(CostDataImportTest, NothingIsWrittenWhenAFileIsBad) {
  Write("comm/data.txt", "only\nnonsense\n");
  const auto report = Import();
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(report.status()), HasSubstr("none of its 2 lines is a cost line"));
  EXPECT_EQ(store_->ReadRecords<ComputeRecord>()->size(), 0u);

  fs::remove(folder_ / "comm/data.txt");
  EXPECT_EQ(Import().status().code(), absl::StatusCode::kNotFound);
  Write("compute/table_configs.json", "[{}]");
  const auto tables = Import();
  EXPECT_THAT(Message(tables.status()), HasSubstr("table_configs.json: "));
}

}  // namespace
}  // namespace neuroshard
