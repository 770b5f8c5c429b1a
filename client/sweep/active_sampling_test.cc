#include "client/sweep/active_sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_planner.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using testing::FakePlanner;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

TEST(WidestIntervalsTest, TakesTheWidestInTheirOrderAndTheFirstOfEqualOnes) {
  EXPECT_THAT(WidestIntervals({0.1, 0.5, 0.3, 0.5, 0.2}, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(WidestIntervals({0.5, 0.5, 0.5}, 2), ElementsAre(0, 1));
  EXPECT_THAT(WidestIntervals({0.5}, 2), ElementsAre(0));
}

TEST(ActiveSamplingTest, AModelWithoutIntervalsCannotChoose) {
  FakePlanner planner;
  planner.model.mutable_summary()->set_name("cpu");
  planner.model.mutable_summary()->set_version(3);
  const PlannerClient client(planner.address());
  EXPECT_THAT(ResolveChoosingModel(client, {"cpu", 0}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cpu/3 does not say")));
  planner.model.set_interval_coverage(0.9);
  EXPECT_EQ(*ResolveChoosingModel(client, {"cpu", 0}), (CostModelRef{"cpu", 3}));
}

// So many that they go in several calls.
std::vector<ComputeSample> Candidates(int count, int shards) {
  std::vector<ComputeSample> candidates(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    ComputeSample& sample = candidates[static_cast<std::size_t>(i)];
    sample.sample_id = fmt::format("c{:06}", i);
    sample.batch_size = i;  // what the fake planner goes by
    sample.shards.resize(static_cast<std::size_t>(shards));
    for (MeasuredShard& shard : sample.shards) shard.rows = shard.cols = 4;
  }
  return candidates;
}

// Twice as sure of what costs twice as much; widest around batch size 400.
grpc::Status Predict(const v1::PredictComputeRequest& request,
                     v1::PredictComputeResponse* response) {
  for (const v1::ComputeSet& set : request.sets()) {
    v1::ComputePrediction& prediction = *response->add_predictions();
    const double cost_ms = set.batch_size() % 2 == 0 ? 1 : 2;
    const auto distance = static_cast<double>(std::abs(set.batch_size() - 400));
    prediction.set_total_ms(cost_ms);
    prediction.mutable_total_interval()->set_low_ms(0);
    prediction.mutable_total_interval()->set_high_ms(cost_ms / (1 + distance));
  }
  return grpc::Status::OK;
}

TEST(ActiveSamplingTest, TheWidestRelativeIntervalsAreChosenOverSeveralCallsOfOneVersion) {
  FakePlanner planner;
  int calls = 0;
  planner.predict = [&](const v1::PredictComputeRequest& request,
                        v1::PredictComputeResponse* response) {
    ++calls;
    EXPECT_EQ(request.cost_model().version(), 7);
    EXPECT_EQ(request.sets(0).shards_size(), 60);
    return Predict(request, response);
  };
  const auto chosen = ChooseLeastSure(PlannerClient(planner.address()), {"cpu", 7},
                                      Candidates(500, 60), 5, NeverStop());
  ASSERT_THAT(chosen, IsOk());
  std::vector<std::int64_t> batch_sizes;
  for (const ComputeSample& sample : *chosen) batch_sizes.push_back(sample.batch_size);
  EXPECT_THAT(batch_sizes, ElementsAre(398, 399, 400, 401, 402));
  EXPECT_EQ(calls, 4);  // 30,000 shards, 166 candidates a call
}

TEST(ActiveSamplingTest, NoIntervalNoAnswerAndAStopAreErrors) {
  FakePlanner planner;
  const PlannerClient client(planner.address());
  EXPECT_THAT(ChooseLeastSure(client, {"cpu", 7}, Candidates(3, 1), 1, NeverStop()),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("0 of 3")));
  planner.predict = [](const v1::PredictComputeRequest& request,
                       v1::PredictComputeResponse* response) {
    for (int i = 0; i < request.sets_size(); ++i) response->add_predictions()->set_total_ms(1);
    return grpc::Status::OK;
  };
  EXPECT_THAT(ChooseLeastSure(client, {"cpu", 7}, Candidates(3, 1), 1, NeverStop()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("sample c000000")));
  ManualStop stop;
  stop.Stop();
  EXPECT_THAT(ChooseLeastSure(client, {"cpu", 7}, Candidates(3, 1), 1, stop),
              StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace neuroshard
