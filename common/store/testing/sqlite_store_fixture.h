// A store in a file, in a directory of its own for every test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "common/store/profile_store.h"

namespace neuroshard {

class SqliteStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "store_" + TestName() + "_" + std::to_string(getpid());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // The running test's name, made fit to name a file or a database.
  static std::string TestName() {
    std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
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

}  // namespace neuroshard
