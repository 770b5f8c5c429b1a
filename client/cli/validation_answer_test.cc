#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/cli/validate_command.h"
#include "common/codec/message_text.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ValidationReport SomeReport() {
  ValidationReport report;
  report.ranks = {
      {"h:1", 0, 4.0, 6.0, 2.0, 3.0, 0.0, ""},
      {"h:2", 1, std::nullopt, std::nullopt, 2.0, std::nullopt, 0.0, "out_of_memory: big"}};
  report.notes = {"forward communication was not measured"};
  return report;
}

const TextStyle kWide{.detail = Detail::kWide};

PlanCost SomePrediction() {
  PlanCost cost;
  cost.embedding_cost_ms = 18;
  cost.ranks.resize(2);
  cost.ranks[0].compute_ms = 12;
  cost.ranks[0].backward_comm_ms = 1;
  cost.ranks[0].forward_comm_ms = 3;
  cost.ranks[1].compute_ms = 18;
  return cost;
}

TEST(ValidationAnswerTest, TableGolden) {
  EXPECT_EQ(ValidationAsTable(SomeReport(), SomePrediction(), kWide),
            "rank  stage          predicted_ms  measured_ms    error  device\n"
            "   0  compute              12.000       10.000   +20.0%  h:1 device 0\n"
            "   0  backward_comm         1.000        2.000   -50.0%  h:1 device 0\n"
            "   0  forward_comm          3.000        3.000    +0.0%  h:1 device 0\n"
            "   0  total                16.000       15.000    +6.7%  h:1 device 0\n"
            "   1  compute              18.000            -        -  h:2 device 1\n"
            "   1  backward_comm         0.000        2.000  -100.0%  h:2 device 1\n"
            "   1  forward_comm          0.000            -        -  h:2 device 1\n"
            "   1  total                18.000            -        -  h:2 device 1\n"
            "plan cost: predicted 18.000 ms, measured - ms, error -\n"
            "rank 1: out_of_memory: big\n"
            "note: forward communication was not measured\n");
}

TEST(ValidationAnswerTest, SaysWhetherWhatWasMeasuredIsWhereTheModelSaid) {
  PlanCost cost = SomePrediction();
  cost.interval_coverage = 0.9;
  cost.interval = CostInterval{10, 20};
  cost.ranks[0].intervals.compute = CostInterval{9, 14};
  cost.ranks[0].intervals.backward_comm = CostInterval{0.5, 1.5};
  EXPECT_EQ(
      ValidationAsTable(SomeReport(), cost, kWide),
      "rank  stage          predicted_ms            90%   measured_ms    error  device\n"
      "   0  compute              12.000  9.000..14.000        10.000   +20.0%  h:1 device 0\n"
      "   0  backward_comm         1.000   0.500..1.500!        2.000   -50.0%  h:1 device 0\n"
      "   0  forward_comm          3.000               -        3.000    +0.0%  h:1 device 0\n"
      "   0  total                16.000               -       15.000    +6.7%  h:1 device 0\n"
      "   1  compute              18.000               -            -        -  h:2 device 1\n"
      "   1  backward_comm         0.000               -        2.000  -100.0%  h:2 device 1\n"
      "   1  forward_comm          0.000               -            -        -  h:2 device 1\n"
      "   1  total                18.000               -            -        -  h:2 device 1\n"
      "plan cost: predicted 18.000 ms, measured - ms, error -\n"
      "measured inside the model's 90% interval: 1 of 2\n"
      "rank 1: out_of_memory: big\n"
      "note: forward communication was not measured\n");
  const auto json = nlohmann::json::parse(MessageToJson(ValidationOf(SomeReport(), cost)));
  const auto& stages = json["ranks"][0]["stages"];
  EXPECT_EQ(stages["compute"]["inside"], true);
  EXPECT_EQ(stages["backward_comm"]["inside"], false);
  EXPECT_EQ(stages["backward_comm"]["interval"]["high_ms"], 1.5);
  EXPECT_FALSE(stages["total"].contains("interval"));
  EXPECT_FALSE(json["embedding_cost"].contains("inside"));
}

TEST(ValidationAnswerTest, SaysWhatAStageIsMadeOfWhereItIsMoreThanAnAllToAll) {
  ValidationReport report = SomeReport();
  const auto add = [&](Collective collective, double first_ms) {
    MeasuredCommSample& measured = report.comm.emplace_back();
    measured.sample.collective = collective;
    measured.measurements.resize(2);
    measured.measurements[0].series.median_ms = first_ms;
    measured.measurements[1].outcome = Outcome::kOutOfMemory;
  };
  add(Collective::kAllToAll, 1.5);
  EXPECT_EQ(ValidationAsTable(report, SomePrediction(), kWide),
            ValidationAsTable(SomeReport(), SomePrediction(), kWide));
  add(Collective::kReduceScatter, 2.5);
  EXPECT_THAT(ValidationAsTable(report, SomePrediction(), kWide),
              HasSubstr("forward_comm: all_to_all 1.500 ms on its slowest rank\n"
                        "forward_comm: reduce_scatter 2.500 ms on its slowest rank\n"));
  const auto json =
      nlohmann::json::parse(MessageToJson(ValidationOf(report, std::nullopt)))["collectives"];
  EXPECT_EQ(json[1]["collective"], "reduce_scatter");
  EXPECT_EQ(json[1]["measured_ms"], (nlohmann::json{2.5, nullptr}));
}

TEST(ValidationAnswerTest, TheDistributionOfIdsIsAStageWhereItWasMeasured) {
  ValidationReport report = SomeReport();
  report.input_dist = InputDistUse::kExposed;
  report.ranks[0].input_dist_ms = 5.0;
  MeasuredCommSample& measured = report.comm.emplace_back();
  measured.sample.sample_id = "input_dist-weighted";
  measured.sample.input_dist.emplace();
  measured.measurements.resize(2);
  report.comm.emplace_back().sample.collective = Collective::kAllReduce;
  PlanCost cost = SomePrediction();
  cost.ranks[0].input_dist_ms = 4.0;
  cost.ranks[0].input_dist_hidden = false;
  EXPECT_THAT(ValidationAsTable(report, cost, kWide),
              AllOf(HasSubstr("   0  input_dist            4.000        5.000   -20.0%"),
                    HasSubstr("   0  total                20.000       20.000    +0.0%"),
                    HasSubstr("   1  input_dist                -            -        -"),
                    HasSubstr("input_dist-weighted: 0.000 ms on its slowest rank\n")));
  const auto json = nlohmann::json::parse(MessageToJson(ValidationOf(report, cost)));
  EXPECT_EQ(json["ranks"][0]["stages"]["input_dist"]["measured_ms"], 5.0);
  EXPECT_EQ(json["collectives"][0]["collective"], "input_dist");
  EXPECT_TRUE(json["collectives"][0]["direction"].is_null());

  report.input_dist = InputDistUse::kHidden;
  EXPECT_EQ(report.total_ms(0), 15.0);
  report.input_dist = InputDistUse::kNotMeasured;
  EXPECT_THAT(ValidationAsTable(report, cost, kWide), Not(HasSubstr("  input_dist ")));
}

TEST(ValidationAnswerTest, JsonHasNullForWhatIsNotKnown) {
  const auto json = nlohmann::json::parse(MessageToJson(ValidationOf(SomeReport(), std::nullopt)));
  EXPECT_TRUE(json["embedding_cost"]["predicted_ms"].is_null());
  EXPECT_TRUE(json["embedding_cost"]["measured_ms"].is_null());
  const auto& rank = json["ranks"][0];
  EXPECT_EQ(rank["stages"]["compute"]["measured_ms"], 10.0);
  EXPECT_TRUE(rank["stages"]["compute"]["relative_error"].is_null());
  EXPECT_EQ(rank["measured_forward_compute_ms"], 4.0);
  EXPECT_EQ(json["ranks"][1]["problem"], "out_of_memory: big");
  const auto predicted =
      nlohmann::json::parse(MessageToJson(ValidationOf(SomeReport(), SomePrediction())));
  EXPECT_DOUBLE_EQ(predicted["ranks"][0]["stages"]["compute"]["relative_error"], 0.2);
}

}  // namespace
}  // namespace neuroshard
