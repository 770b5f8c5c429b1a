#include "server/networks/model_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <utility>

#include "server/networks/testing/model_fixture.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) /
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fixture_ = MakeModelFixture({.name = "m", .version = 2, .device_counts = {2}});
    directory_ = root_ / "m" / "2";
  }

  Status Write() const {
    return WriteModelDirectory(directory_, fixture_.manifest, fixture_.files);
  }

  static std::vector<std::string> Names(const fs::path& directory) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  fs::path root_;
  fs::path directory_;
  ModelFixture fixture_;
};

TEST_F(ModelDirectoryTest, WritesWhatLoadingReads) {
  ASSERT_TRUE(Write().ok());
  EXPECT_THAT(Names(root_ / "m"), ElementsAre("2"));
  EXPECT_THAT(Names(directory_),
              ElementsAre("backward_comm_2.safetensors", "compute.safetensors", "files.sha256",
                          "forward_comm_2.safetensors", "model.yaml"));
  ModelManifest manifest = *ReadModelManifest(directory_);
  EXPECT_EQ(std::exchange(manifest.digest, "").size(), 64U);
  EXPECT_EQ(manifest, fixture_.manifest);
  for (const auto& [name, file] : fixture_.files) {
    EXPECT_EQ(*ReadTensorFile(directory_ / name), file);
  }
}

TEST_F(ModelDirectoryTest, NeverReplacesAModel) {
  ASSERT_TRUE(Write().ok());
  const Status again = Write();
  EXPECT_TRUE(absl::IsAlreadyExists(again)) << again;
  EXPECT_THAT(Message(again), HasSubstr("m/2"));
  EXPECT_THAT(Names(root_ / "m"), ElementsAre("2"));
  EXPECT_TRUE(ReadModelManifest(directory_).ok());
}

TEST_F(ModelDirectoryTest, FillsAnEmptyDirectory) {
  fs::create_directories(directory_);
  EXPECT_TRUE(Write().ok());
  EXPECT_TRUE(ReadModelManifest(directory_).ok());
}

TEST_F(ModelDirectoryTest, RefusesWhatLoadingWouldRefuseAndLeavesNothing) {
  const ModelFixture good = fixture_;
  fixture_.files["compute.safetensors"].tensors["feature_std"].values[0] = 0;
  EXPECT_THAT(Message(Write()), HasSubstr("feature_std: value 0 is 0"));
  fixture_ = good;
  fixture_.files.erase("compute.safetensors");
  EXPECT_THAT(Message(Write()), HasSubstr("compute.safetensors is in the manifest only"));
  fixture_ = good;
  fixture_.files["more.safetensors"] = {};
  EXPECT_THAT(Message(Write()), HasSubstr("more.safetensors is not in the manifest"));
  fixture_ = good;
  fixture_.manifest.version = 3;
  EXPECT_THAT(Message(Write()), HasSubstr("m/3, the directory is m/2"));
  EXPECT_FALSE(fs::exists(root_));
}

TEST_F(ModelDirectoryTest, SaysWhereItCannotWrite) {
  std::ofstream(root_) << "a file where the folder should be";
  const Status status = Write();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(Message(status), HasSubstr(root_.string()));
}

}  // namespace
}  // namespace neuroshard
