#include "server/model_watcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "server/networks/model_drift.h"
#include "server/networks/testing/model_fixture.h"
#include "tests/support/fake_cost_model.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeCostModel;
using ::neuroshard::testing::IsOk;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ModelWatcherTest : public ::testing::Test {
 protected:
  ModelWatcherTest() {
    std::filesystem::create_directories(root_);
    EXPECT_THAT(WriteModelFixture(root_, {.version = 1}), IsOk());
    auto created = ModelRepository::Create(
        {root_, "", {}},
        [](const ModelManifest& manifest,
           const std::filesystem::path&) -> StatusOr<std::shared_ptr<const CostModel>> {
          if (manifest.version == 13) return InvalidArgument("unlucky");
          CostModelInfo info;
          info.name = manifest.name;
          info.version = manifest.version;
          info.drift = manifest.drift;
          info.digest = manifest.digest;
          if (manifest.version == 2) {
            info.details = {{"metrics.compute.mape_percent", "214"},
                            {"metrics.compute.samples", "30"}};
          }
          return std::make_shared<const FakeCostModel>(info);
        });
    EXPECT_THAT(created, IsOk());
    repository_ = *std::move(created);
  }
  ~ModelWatcherTest() override { std::filesystem::remove_all(root_); }

  // Lets the watcher's thread work until the snapshot is as wanted; the test's time limit ends it
  // otherwise.
  void WaitFor(std::size_t models, std::size_t refused) {
    while (repository_->Current()->models().size() != models ||
           repository_->Current()->refused().size() != refused) {
      std::this_thread::yield();
    }
  }

  const std::filesystem::path root_ =
      std::filesystem::path(::testing::TempDir()) /
      ("model_watcher_" + std::to_string(getpid()) + "_" +
       ::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::unique_ptr<ModelRepository> repository_;
  prometheus::Registry registry_;
  PlannerMetrics metrics_{registry_};
  std::ostringstream log_;
  std::unique_ptr<Logger> logger_ = Logger::ToStream(&log_);
};

TEST_F(ModelWatcherTest, ReloadsWhenToldAndSaysOnceWhatChanged) {
  {
    ModelWatcher watcher(*repository_, std::chrono::milliseconds(0), *logger_, metrics_);
    EXPECT_THAT(WriteModelFixture(root_, {.version = 2}), IsOk());
    EXPECT_THAT(WriteModelFixture(root_, {.version = 13}), IsOk());
    watcher.ReloadNow();
    WaitFor(2, 1);
    // The refused one is still there at the next reload, and is no news.
    EXPECT_THAT(WriteModelFixture(root_, {.version = 3}), IsOk());
    watcher.ReloadNow();
    WaitFor(3, 1);
  }
  const std::string log = log_.str();
  EXPECT_THAT(log, AllOf(HasSubstr("model_loaded model=fixture/1"),
                         HasSubstr("model_loaded model=fixture/2"), HasSubstr("unlucky")));
  EXPECT_EQ(log.find("model_refused"), log.rfind("model_refused"));
  EXPECT_THAT(log, AllOf(HasSubstr("default_model model=fixture/1"),
                         HasSubstr("poor_default_model model=fixture/2"), HasSubstr("214% off"),
                         HasSubstr("default_model model=fixture/3")));
  EXPECT_EQ(log.find("poor_default_model"), log.rfind("poor_default_model"));
}

TEST_F(ModelWatcherTest, TellsWhetherRequestsThatNameNoModelHaveOne) {
  std::atomic<int> told{0};
  std::atomic<bool> there{false};
  ModelWatcher watcher(*repository_, std::chrono::milliseconds(0), *logger_, metrics_);
  watcher.OnDefaultModel([&](bool now) {
    there = now;
    ++told;
  });
  EXPECT_TRUE(there);
  std::filesystem::rename(root_ / "fixture", root_ / "away~");
  watcher.ReloadNow();
  while (told < 2) std::this_thread::yield();
  EXPECT_FALSE(there);
  std::filesystem::rename(root_ / "away~", root_ / "fixture");
  watcher.ReloadNow();
  while (told < 3) std::this_thread::yield();
  EXPECT_TRUE(there);
  watcher.OnDefaultModel(nullptr);
}

TEST_F(ModelWatcherTest, AChannelThatThisReplicaCannotObeyIsSaidAndDisturbsNothing) {
  const auto shares = [&] {
    std::map<std::string, double> values;
    for (const auto& family : registry_.Collect()) {
      if (family.name != "neuroshard_model_share") continue;
      for (const auto& metric : family.metric) {
        for (const auto& label : metric.label) {
          if (label.name == "version") values[label.value] = metric.gauge.value;
        }
      }
    }
    return values;
  };
  EXPECT_THAT(WriteModelChannel(root_ / "fixture", {1}), IsOk());
  repository_->Reload();
  {
    ModelWatcher watcher(*repository_, std::chrono::milliseconds(0), *logger_, metrics_);
    std::atomic<bool> there{false};
    watcher.OnDefaultModel([&](bool now) { there = now; });
    // Version 13 cannot be loaded here.
    EXPECT_THAT(WriteModelFixture(root_, {.version = 13}), IsOk());
    EXPECT_THAT(WriteModelChannel(root_ / "fixture", {13}), IsOk());
    watcher.ReloadNow();
    WaitFor(1, 2);
    EXPECT_THAT(shares(), ::testing::ElementsAre(::testing::Pair("1", 1)));
    EXPECT_THAT(WriteModelFixture(root_, {.version = 2}), IsOk());
    EXPECT_THAT(WriteModelChannel(root_ / "fixture", {1, StagedVersion{2, 0.25}}), IsOk());
    watcher.ReloadNow();
    WaitFor(2, 1);
    EXPECT_TRUE(there);
    watcher.OnDefaultModel(nullptr);
  }
  EXPECT_THAT(shares(),
              ::testing::ElementsAre(::testing::Pair("1", 0.75), ::testing::Pair("2", 0.25)));
  EXPECT_THAT(log_.str(), AllOf(HasSubstr("model_channel model=fixture serves=\"version 1\""),
                                HasSubstr("directory=fixture/channel.yaml"),
                                HasSubstr("version 13 is not served"),
                                HasSubstr("previous_content_serving=true"),
                                HasSubstr("version 2 for 25% of the requests")));
}

TEST_F(ModelWatcherTest, DriftIsAMetricAsLongAsTheModelServes) {
  const auto gauges = [&](const std::string& name) {
    std::map<std::string, double> values;
    for (const auto& family : registry_.Collect()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        std::string labels;
        for (const auto& label : metric.label) labels += label.value + ' ';
        values[labels] = metric.gauge.value;
      }
    }
    return values;
  };
  ASSERT_THAT(WriteModelDrift(root_ / "fixture/1", {{"all_reduce", 4, 1.5, 1.4, 1.6, "a", "b"},
                                                    {"compute", 40, 1.5, 1.4, 1.6, "a", "b"}}),
              IsOk());
  repository_->Reload();
  std::optional<ModelWatcher> watcher;
  watcher.emplace(*repository_, std::chrono::milliseconds(0), *logger_, metrics_);
  const auto stages = [](double few, double many) {
    return ::testing::ElementsAre(
        ::testing::Pair(AllOf(HasSubstr("fixture"), HasSubstr("all_reduce")), few),
        ::testing::Pair(AllOf(HasSubstr("fixture"), HasSubstr("compute")), many));
  };
  EXPECT_THAT(gauges("neuroshard_model_drift_ratio"), stages(1.5, 1.5));
  EXPECT_THAT(gauges("neuroshard_model_drifted"), stages(0, 1));
  EXPECT_THAT(gauges("neuroshard_model_poor"),
              ::testing::ElementsAre(::testing::Pair(HasSubstr("1"), 0)));
  // Version 2, which is poor, serves in its place.
  EXPECT_THAT(WriteModelFixture(root_, {.version = 2}), IsOk());
  watcher->ReloadNow();
  WaitFor(2, 0);
  watcher.reset();  // What it reloaded is recorded once its thread has ended.
  EXPECT_THAT(gauges("neuroshard_model_drifted"), ::testing::IsEmpty());
  EXPECT_THAT(gauges("neuroshard_model_poor"),
              ::testing::ElementsAre(::testing::Pair(HasSubstr("2"), 1)));
  EXPECT_THAT(gauges("neuroshard_model_drift_ratio"), ::testing::IsEmpty());
}

TEST_F(ModelWatcherTest, OtherContentUnderTheSameVersionIsLoggedAndCounted) {
  ModelWatcher watcher(*repository_, std::chrono::milliseconds(0), *logger_, metrics_);
  const auto other = WriteModelFixture(root_ / ".other", {.version = 1, .seed = 9});
  ASSERT_THAT(other, IsOk());
  std::filesystem::rename(root_ / "fixture/1", root_ / "fixture/1.tmp");
  std::filesystem::rename(*other, root_ / "fixture/1");
  watcher.ReloadNow();
  const auto changes = [&] {
    for (const auto& family : registry_.Collect()) {
      if (family.name == "neuroshard_model_content_changes_total") {
        return family.metric[0].counter.value;
      }
    }
    return -1.0;
  };
  while (changes() < 1) std::this_thread::yield();
  EXPECT_THAT(log_.str(), AllOf(HasSubstr("model_content_changed model=fixture/1 digest_before="),
                                HasSubstr((*repository_->Current()->Find({}))->info().digest)));
}

TEST_F(ModelWatcherTest, PollsByItself) {
  const ModelWatcher watcher(*repository_, std::chrono::milliseconds(1), *logger_, metrics_);
  EXPECT_THAT(WriteModelFixture(root_, {.version = 2}), IsOk());
  WaitFor(2, 0);
}

}  // namespace
}  // namespace neuroshard
