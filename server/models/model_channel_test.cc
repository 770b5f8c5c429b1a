#include "server/models/model_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::StatusIs;
using ::testing::HasSubstr;

std::filesystem::path EmptyFolder(const std::string& name) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / ("channel_" + name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

TEST(ModelChannelTest, IsReadAsItWasWritten) {
  const auto folder = EmptyFolder("round_trip");
  for (const ModelChannel& channel : {ModelChannel{3}, ModelChannel{3, StagedVersion{4, 0.125}},
                                      ModelChannel{4, StagedVersion{3, 1}}}) {
    ASSERT_THAT(WriteModelChannel(folder, channel), IsOk());
    const auto read = ReadModelChannel(folder);
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(*read, channel);
  }
  // Nothing but the file is left behind.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST(ModelChannelTest, EveryFaultIsNamed) {
  const struct {
    const char* yaml;
    const char* fault;
  } kCases[] = {
      {"version: 3", "format"},
      {"format: neuroshard-channel/3\nversion: 3\n", "format"},
      {"format: neuroshard-channel/1\nversion: 3", "its last line has no end"},
      {"format: neuroshard-channel/1", "version: missing"},
      {"format: neuroshard-channel/1\nversion: 0", "version: must be in"},
      {"format: neuroshard-channel/1\nversion: 3\nshare: 1", "share: unknown key"},
      {"format: neuroshard-channel/1\nversion: 3\nrollout: {version: 4}", "rollout.share: missing"},
      {"format: neuroshard-channel/1\nversion: 3\nrollout: {version: 3, share: 1}",
       "serves all requests already"},
      {"format: neuroshard-channel/1\nversion: 3\nrollout: {version: 4, share: 1.5}",
       "rollout.share: must be in"}};
  for (const auto& [yaml, fault] : kCases) {
    EXPECT_THAT(ParseModelChannel(yaml),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(fault)))
        << yaml;
  }
  EXPECT_THAT(WriteModelChannel(EmptyFolder("faulty"), {3, StagedVersion{3, 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("serves all requests")));
}

TEST(ModelChannelTest, NoPartOfWhatIsWrittenIsRead) {
  for (const ModelChannel& channel :
       {ModelChannel{12}, ModelChannel{12, StagedVersion{34, 0.125}}}) {
    const auto folder = EmptyFolder("cut");
    ASSERT_THAT(WriteModelChannel(folder, channel), IsOk());
    std::ifstream file(folder / kChannelFileName);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (std::size_t bytes = 0; bytes < text.size(); ++bytes) {
      EXPECT_FALSE(ParseModelChannel(text.substr(0, bytes)).ok()) << text.substr(0, bytes);
    }
    EXPECT_EQ(*ParseModelChannel(text), channel);
  }
}

TEST(ModelChannelTest, AFolderWithoutOneIsNotFoundAndAFaultNamesTheFile) {
  const auto folder = EmptyFolder("none");
  EXPECT_THAT(ReadModelChannel(folder),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("channel.yaml")));
  std::ofstream(folder / kChannelFileName) << "version: [";
  EXPECT_THAT(ReadModelChannel(folder),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("channel.yaml")));
}

}  // namespace
}  // namespace neuroshard
