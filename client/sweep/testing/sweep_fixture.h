// A store with a planned sweep and everything a run needs, for tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/sweep/sweep_run.h"
#include "common/base/stop_signal.h"

namespace neuroshard::testing {

class SweepFixture : public ::testing::Test {
 protected:
  SweepFixture()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ("sweep_" + std::to_string(getpid()) + "_" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        display_(messages_, clock_, DisplayMode::kLog) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    auto store = ProfileStore::Open((folder_ / "store.db").string(), StoreMode::kReadWrite);
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    store_ = *std::move(store);
  }
  ~SweepFixture() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }

  // Waits short enough for a test, windows long enough for a loaded machine.
  static FleetOptions QuickFleet(std::vector<std::string> workers) {
    FleetOptions fleet;
    fleet.workers = std::move(workers);
    fleet.reconnect_window = std::chrono::milliseconds(30'000);
    fleet.first_backoff = std::chrono::milliseconds(1);
    fleet.longest_backoff = std::chrono::milliseconds(20);
    fleet.sample_deadline = std::chrono::milliseconds(30'000);
    return fleet;
  }

  SweepRun Run(FleetOptions fleet) {
    return {*store_, sweep_id_, MeasurementSettings(), std::move(fleet), clock_, stop_, display_};
  }

  SweepStatistics Statistics() const {
    const auto statistics = store_->Statistics();
    EXPECT_TRUE(statistics.ok());
    return statistics->front();
  }

  std::filesystem::path folder_;
  std::unique_ptr<ProfileStore> store_;
  std::int64_t sweep_id_ = 0;
  SteadyClock clock_;
  ManualStop stop_;
  std::ostringstream messages_;
  ProgressDisplay display_;
};

}  // namespace neuroshard::testing
