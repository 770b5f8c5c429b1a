#include "common/codec/text_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

namespace neuroshard {
namespace {

class TextFileTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(directory_); }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::size_t Files() const {
    const auto entries = std::filesystem::directory_iterator(directory_);
    return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
  }

  std::string directory_ = testing::TempDir() + "text_file_" + std::to_string(getpid());
};

TEST_F(TextFileTest, ReplacesWhatWasThereAndLeavesNothingElse) {
  const std::string path = directory_ + "/plan.json";
  const std::string content("a\0b\n", 4);
  ASSERT_TRUE(WriteTextFile(path, "something longer").ok());
  ASSERT_TRUE(WriteTextFile(path, content).ok());
  EXPECT_EQ(*ReadTextFile(path), content);
  EXPECT_EQ(Files(), 1u);
}

TEST_F(TextFileTest, LinksAndDevicesStayWhatTheyAre) {
  const std::string path = directory_ + "/plan.json", link = directory_ + "/latest";
  ASSERT_TRUE(WriteTextFile(path, "old").ok());
  std::filesystem::create_symlink(path, link);
  ASSERT_TRUE(WriteTextFile(link, "new").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(*ReadTextFile(path), "new");

  const std::string pipe_path = directory_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe_path.c_str(), 0600), 0);
  const int reader = open(pipe_path.c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_TRUE(WriteTextFile(pipe_path, "x").ok());
  EXPECT_TRUE(std::filesystem::is_fifo(pipe_path));
  close(reader);
}

TEST_F(TextFileTest, ErrorsNameTheFile) {
  const std::string missing = directory_ + "/no/such.txt";
  EXPECT_EQ(ReadTextFile(missing).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(ReadTextFile(missing).status()), testing::HasSubstr(missing));
  EXPECT_EQ(WriteTextFile(missing, "x").code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ReadTextFile(directory_).ok());
  EXPECT_FALSE(WriteTextFile(directory_, "x").ok());
  const std::string path = directory_ + "/big";
  ASSERT_TRUE(WriteTextFile(path, std::string(100, 'x')).ok());
  EXPECT_EQ(ReadTextFile(path, 99).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(ReadTextFile(path, 100).ok());
}

TEST_F(TextFileTest, WhetherAFileCanBeWrittenIsToldWithoutATrace) {
  const std::string path = directory_ + "/plan.json";
  EXPECT_TRUE(CheckTextFileWritable(path).ok());
  EXPECT_EQ(Files(), 0u);
  ASSERT_TRUE(WriteTextFile(path, "old").ok());
  EXPECT_TRUE(CheckTextFileWritable(path).ok());
  EXPECT_EQ(*ReadTextFile(path), "old");
  EXPECT_EQ(Files(), 1u);
  EXPECT_TRUE(CheckTextFileWritable("/dev/null").ok());
  EXPECT_FALSE(CheckTextFileWritable(directory_).ok());
  EXPECT_FALSE(CheckTextFileWritable(directory_ + "/absent/plan.json").ok());
}

TEST_F(TextFileTest, AFullDiskLeavesTheOldContentAndNothingElse) {
  const std::string path = directory_ + "/plan.json";
  ASSERT_TRUE(WriteTextFile(path, "old").ok());
  const pid_t child = fork();
  if (child == 0) {
    // Files may not grow past this: a write fails as on a full disk.
    const rlimit limit{10, 10};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(WriteTextFile(path, std::string(100, 'x')).ok() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(*ReadTextFile(path), "old");
  EXPECT_EQ(Files(), 1u);
}

}  // namespace
}  // namespace neuroshard
