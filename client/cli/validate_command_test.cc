#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "client/cli/testing/command_line_fixture.h"
#include "tests/support/fake_worker.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using testing::FakeWorker;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ValidateCommandTest : public testing::CommandLineTest {};

TEST_F(ValidateCommandTest, MeasuresNothingForAStoreItCannotWrite) {
  FakeWorker a;
  FakeWorker b;
  EXPECT_EQ(Run({"validate", request_, plan_, "--workers", a.address() + "," + b.address(),
                 "--store", "/nowhere/store.db"}),
            1);
  EXPECT_THAT(err_, HasSubstr("/nowhere/store.db"));
  EXPECT_THAT(a.measured(), IsEmpty());
}

TEST_F(ValidateCommandTest, AFailureMakesNoStore) {
  FakeWorker a({.refused = {"rank-0"}});
  FakeWorker b;
  const std::string store = (folder_ / "never.db").string();
  EXPECT_EQ(Run({"validate", request_, plan_, "--workers", a.address() + "," + b.address(),
                 "--store", store}),
            1);
  EXPECT_FALSE(std::filesystem::exists(store));
}

TEST_F(ValidateCommandTest, PutsMeasuredBesidePredicted) {
  FakeWorker a;
  FakeWorker b;
  planner_.evaluation.set_legal(true);
  planner_.evaluation.mutable_cost()->set_embedding_cost_ms(10);
  for (int rank = 0; rank < 2; ++rank) {
    v1::RankCost* cost = planner_.evaluation.mutable_cost()->add_ranks();
    cost->set_rank(rank);
    cost->set_compute_ms(6);
  }
  EXPECT_EQ(
      Run({"validate", request_, plan_, "--workers", a.address() + "," + b.address(), "--planner",
           planner_.address(), "--format", "json", "--store", (folder_ / "store.db").string()}),
      0)
      << err_;
  EXPECT_THAT(err_, AllOf(HasSubstr("4 samples recorded in"), Not(HasSubstr("no prediction"))));
  const auto json = nlohmann::json::parse(out_);
  ASSERT_EQ(json["ranks"].size(), 2u);
  // The fake answers 1 + 2 ms compute and 1 ms for each collective.
  EXPECT_EQ(json["ranks"][0]["stages"]["compute"]["measured_ms"], 3.0);
  EXPECT_EQ(json["ranks"][0]["stages"]["compute"]["relative_error"], 1.0);
  EXPECT_EQ(json["embedding_cost"]["measured_ms"], 5.0);
  EXPECT_EQ(json["embedding_cost"]["predicted_ms"], 10.0);
}

TEST_F(ValidateCommandTest, MeasuresInTheCadenceThatTheCostModelLearnedFrom) {
  FakeWorker a;
  FakeWorker b;
  planner_.evaluation.set_legal(true);
  const auto run = [&] {
    EXPECT_EQ(Run({"validate", request_, plan_, "--workers", a.address() + "," + b.address(),
                   "--planner", planner_.address(), "--format", "json"}),
              0)
        << err_;
    return out_;
  };
  EXPECT_THAT(run(), Not(HasSubstr("cadence")));
  planner_.evaluation.mutable_price_basis()->set_collective_cadence("barrier");
  EXPECT_THAT(run(), Not(HasSubstr("cadence")));
  planner_.evaluation.mutable_price_basis()->set_collective_cadence("back_to_back");
  EXPECT_THAT(run(), HasSubstr("collectives were measured with cadence back_to_back, as those that "
                               "the cost model learned from"));
}

TEST_F(ValidateCommandTest, ADistributionOfIdsIsNotMeasuredAndNotCompared) {
  FakeWorker a;
  FakeWorker b;
  planner_.evaluation.set_legal(true);
  planner_.evaluation.mutable_cost()->set_embedding_cost_ms(10);
  for (int rank = 0; rank < 2; ++rank) {
    v1::RankCost* cost = planner_.evaluation.mutable_cost()->add_ranks();
    cost->set_rank(rank);
    cost->set_compute_ms(6);
    cost->set_input_dist_ms(rank == 0 ? 4 : 1);
    cost->set_total_ms(rank == 0 ? 10 : 7);
    const auto set = [](v1::CostInterval* interval, double low_ms, double high_ms) {
      interval->set_low_ms(low_ms);
      interval->set_high_ms(high_ms);
    };
    set(cost->mutable_compute_interval(), 5, 8);
    set(cost->mutable_forward_comm_interval(), 0, 0);
    set(cost->mutable_backward_comm_interval(), 0, 0);
    set(cost->mutable_input_dist_interval(), 0, 20);
    set(cost->mutable_total_interval(), 1, 30);
  }
  planner_.evaluation.mutable_cost()->set_interval_coverage(0.9);
  planner_.evaluation.mutable_cost()->mutable_interval()->set_high_ms(30);
  EXPECT_EQ(Run({"validate", request_, plan_, "--workers", a.address() + "," + b.address(),
                 "--planner", planner_.address(), "--format", "json"}),
            0)
      << err_;
  const auto json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["embedding_cost"]["predicted_ms"], 6.0);
  EXPECT_EQ(json["ranks"][0]["stages"]["total"]["predicted_ms"], 6.0);
  // Without what the ids may be off by.
  EXPECT_EQ(json["ranks"][0]["stages"]["total"]["interval"]["low_ms"], 5.0);
  EXPECT_EQ(json["ranks"][0]["stages"]["total"]["interval"]["high_ms"], 8.0);
  EXPECT_LT(json["embedding_cost"]["interval"]["high_ms"], 10.0);
  EXPECT_THAT(out_, HasSubstr("the distribution of ids is left out of the predicted totals"));
}

TEST_F(ValidateCommandTest, SaysWhereTablesInHostMemoryAreMeasuredInDeviceMemory) {
  FakeWorker a;
  FakeWorker b;
  const std::string plan =
      std::string(testing::kPlan)
          .replace(std::string(testing::kPlan).find("\"fused\""), 7, "\"fused_uvm\"");
  EXPECT_EQ(Run({"validate", request_, Write("uvm.json", plan), "--workers",
                 a.address() + "," + b.address(), "--format", "json"}),
            0)
      << err_;
  EXPECT_THAT(out_, HasSubstr("were looked up in device memory: 127.0.0.1"));
}

TEST_F(ValidateCommandTest, SaysWhenThePredictionIsOfOtherKernelsOrCollectives) {
  FakeWorker a;
  FakeWorker b;
  const std::vector<std::string> command = {
      "validate",  request_,          plan_, "--workers", a.address() + "," + b.address(),
      "--planner", planner_.address()};
  planner_.evaluation.set_legal(true);
  v1::MeasuredWith& with = *planner_.evaluation.mutable_cost()->mutable_measured_with();
  with.set_device("fake");
  with.set_backend("fake-kernels");
  EXPECT_EQ(Run(command), 0) << err_;
  EXPECT_THAT(out_,
              HasSubstr("measured with fake-kernels kernels and fake-rings collectives on fake\n"));
  EXPECT_THAT(out_, Not(HasSubstr("the prediction forecasts")));
  with.set_collective_backend("torch-gloo");
  EXPECT_EQ(Run(command), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("note: the prediction forecasts fake-kernels kernels and torch-gloo "
                              "collectives\n  on fake, measured were fake-kernels kernels and "
                              "fake-rings collectives on fake\n"));
}

TEST_F(ValidateCommandTest, WithTooFewDevicesMeasuresComputeOnlyAndSaysSo) {
  FakeWorker a;
  EXPECT_EQ(Run({"validate", request_, plan_, "--workers", a.address()}), 0) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("2 ranks on 1 devices"), HasSubstr("measured - ms")));
  EXPECT_THAT(err_, HasSubstr("plan.json has no prediction"));
  EXPECT_EQ(a.measured().size(), 2u);
}

TEST_F(ValidateCommandTest, ReportsARankThatDoesNotFit) {
  FakeWorker a({.out_of_memory = {"rank-0"}});
  FakeWorker b;
  EXPECT_EQ(Run({"validate", request_, plan_, "--workers", a.address() + "," + b.address()}), 1);
  EXPECT_THAT(out_, AllOf(HasSubstr("rank 0: out_of_memory: needs more than there is"),
                          HasSubstr("forward communication was not measured")));
}

TEST_F(ValidateCommandTest, RefusesAPlanThatIsNotForTheRequest) {
  const std::string other = Write("other.json", R"({"world_size": 2, "tables": [
    {"name": "a", "sharding_type": "table_wise", "compute_kernel": "fused", "shards": [{"rows": 99, "cols": 9, "rank": 5}]},
    {"name": "z", "sharding_type": "table_wise", "compute_kernel": "fused", "shards": [{"rows": 1, "cols": 1, "rank": 0}]}]})");
  EXPECT_EQ(Run({"validate", request_, other, "--workers", "127.0.0.1:1"}), 1);
  EXPECT_THAT(
      err_, AllOf(HasSubstr("shards[0].rank"), HasSubstr("shards[0].rows"),
                  HasSubstr("shards[0].cols"), HasSubstr("\"z\""), HasSubstr("\"b\" is missing")));
}

}  // namespace
}  // namespace neuroshard
