#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "common/base/sha256.h"
#include "server/networks/model_directory.h"
#include "server/networks/testing/model_fixture.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;
using ::neuroshard::testing::StatusIs;
using ::testing::HasSubstr;

class FileListTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const fs::path root = fs::path(::testing::TempDir()) / "model_files" /
                          ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root);
    const auto written = WriteModelFixture(root, {.name = "m", .device_counts = {2}});
    ASSERT_TRUE(written.ok()) << written.status();
    directory_ = *written;
    list_ = Read("files.sha256");
  }

  std::string Read(const std::string& name) const {
    std::ifstream file(directory_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Write(const std::string& name, std::string_view bytes) const {
    std::ofstream(directory_ / name, std::ios::binary) << bytes;
  }
  void WriteList(const std::string& lines) const {
    Write("files.sha256", lines + Sha256Hex(lines) + "\n");
  }

  fs::path directory_;
  std::string list_;
};

TEST_F(FileListTest, TheDigestIsTheLastLineOfTheList) {
  const auto digest = CheckModelFiles(directory_, true);
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_THAT(list_, ::testing::EndsWith(*digest + "\n"));
  EXPECT_THAT(list_, HasSubstr(fmt::format("{} {} model.yaml\n", Sha256Hex(Read("model.yaml")),
                                           Read("model.yaml").size())));
  // What comes later or is nobody's business is not in it.
  for (const char* name : {"drift.yaml", ".hidden", "notes~", "x.tmp"}) Write(name, "later");
  ASSERT_TRUE(WriteFileList(directory_).ok());
  EXPECT_EQ(Read("files.sha256"), list_);
  fs::remove(directory_ / "files.sha256");
  EXPECT_EQ(*CheckModelFiles(directory_, false), *digest) << "without a list the same";
  EXPECT_THAT(CheckModelFiles(directory_, true),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("there is none")));
}

TEST_F(FileListTest, NoPartOfAListIsAList) {
  for (std::size_t bytes = 0; bytes < list_.size(); ++bytes) {
    Write("files.sha256", list_.substr(0, bytes));
    EXPECT_FALSE(CheckModelFiles(directory_, false).ok()) << list_.substr(0, bytes);
  }
  Write("files.sha256", std::string(list_.size(), '\0'));
  EXPECT_FALSE(CheckModelFiles(directory_, false).ok());
}

TEST_F(FileListTest, AnotherByteALackingFileAndAnotherLengthAreSeenInEveryFile) {
  for (const std::string name : {"model.yaml", "compute.safetensors"}) {
    const std::string bytes = Read(name);
    std::string other = bytes;
    other[other.size() / 2] ^= 1;
    for (const std::string& content : {other, bytes + "\n", bytes.substr(1), std::string()}) {
      Write(name, content);
      EXPECT_THAT(
          CheckModelFiles(directory_, true),
          StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name + " is not the file")));
    }
    fs::remove(directory_ / name);
    EXPECT_FALSE(CheckModelFiles(directory_, true).ok());
    Write(name, bytes);
    EXPECT_TRUE(CheckModelFiles(directory_, true).ok());
  }
}

TEST_F(FileListTest, AListOfSomethingElseIsRefused) {
  const std::string good = list_.substr(0, list_.size() - 65);
  WriteList(good);
  EXPECT_TRUE(CheckModelFiles(directory_, true).ok());
  const std::string hash(64, 'a');
  for (const std::string& lines :
       {good + hash + " 5 ../m\n", good + hash + " 5 /etc/passwd\n", good + hash + "\n",
        good + hash + " x model.yaml\n", good + "\n", good + hash + " 5 "}) {
    WriteList(lines);
    EXPECT_THAT(CheckModelFiles(directory_, true), StatusIs(absl::StatusCode::kInvalidArgument))
        << lines;
  }
  const std::string tensors = Read("compute.safetensors");
  WriteList(fmt::format("{} {} compute.safetensors\n", Sha256Hex(tensors), tensors.size()));
  EXPECT_THAT(CheckModelFiles(directory_, true),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not name model.yaml")));
}

}  // namespace
}  // namespace neuroshard
