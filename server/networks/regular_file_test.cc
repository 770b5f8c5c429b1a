#include "server/networks/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

namespace neuroshard {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RegularFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  std::size_t FilesInFolder() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(RegularFileTest, WritesReplacesAndReads) {
  const fs::path path = folder_ / "a";
  ASSERT_TRUE(WriteFileAtomically(path, "one").ok());
  ASSERT_TRUE(WriteFileAtomically(path, std::string("two\0three", 9)).ok());
  EXPECT_EQ(*ReadRegularFile(path, 9), std::string("two\0three", 9));
  EXPECT_EQ(FilesInFolder(), 1U);
  EXPECT_THAT(Message(ReadRegularFile(path, 8).status()), HasSubstr("more than the limit of 8"));
}

TEST_F(RegularFileTest, AFailedWriteLeavesNothing) {
  fs::create_directory(folder_ / "taken");
  const Status status = WriteFileAtomically(folder_ / "taken", "bytes");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(Message(status), HasSubstr("taken"));
  EXPECT_EQ(FilesInFolder(), 1U);
  EXPECT_TRUE(absl::IsNotFound(WriteFileAtomically(folder_ / "no" / "such", "bytes")));
}

TEST_F(RegularFileTest, ReadsOnlyRegularFilesAndNeverWaits) {
  EXPECT_TRUE(absl::IsNotFound(ReadRegularFile(folder_ / "absent", 10).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadRegularFile(folder_, 10).status()));
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(Message(ReadRegularFile(pipe, 10).status()), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace neuroshard
