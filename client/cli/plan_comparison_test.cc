#include "client/cli/plan_comparison.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>

#include "client/cli/testing/command_line_fixture.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using testing::CommandLineTest;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ComparePlansTest : public CommandLineTest {
 protected:
  ComparePlansTest() {
    constrained_ = Write("constrained.yaml", std::string(testing::kRequest) +
                                                 "constraints: {max_shards_per_rank: 1}\n");
    auto plan = planner_.plan;
    planner_.plan = [plan](const v1::ShardPlanRequest& request, v1::ShardPlanResponse* response) {
      if (request.search().strategy() == "random") {
        return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "found none");
      }
      response->mutable_cost_model()->set_name("m");
      response->mutable_cost_model()->set_version(3);
      return plan(request, response);
    };
    planner_.evaluation.mutable_cost()->set_embedding_cost_ms(15);
    v1::PlanViolation& violation = *planner_.evaluation.add_violations();
    violation.set_field("plan.tables[0]");
    violation.set_description("too many shards");
  }

  std::string constrained_;
};

TEST_F(ComparePlansTest, BaselinesAreAskedWithoutConstraintsAndHeldAgainstThem) {
  EXPECT_EQ(Run({"plan", constrained_, "--planner", planner_.address(), "--compare",
                 "size_greedy,random", "--strategy", "refine", "--explain"}),
            0)
      << err_;
  EXPECT_THAT(out_,
              AllOf(HasSubstr("compared"), HasSubstr("refine (this plan)    7.500  1.000"),
                    HasSubstr("size_greedy          15.000  2.000        1.5  no     ignored"),
                    HasSubstr("size_greedy: breaks 1 rule: plan.tables[0]: too many shards"),
                    HasSubstr("random: no plan: ")));
  const auto asked = planner_.requests();
  ASSERT_EQ(asked.size(), 4u);  // the plan, size_greedy, its evaluation, random
  EXPECT_TRUE(asked[0].has_constraints());
  EXPECT_EQ(asked[1].search().strategy(), "size_greedy");
  EXPECT_FALSE(asked[1].has_constraints());
  EXPECT_FALSE(asked[1].search().explain());
  EXPECT_TRUE(asked[2].has_constraints());
  for (std::size_t i = 1; i < asked.size(); ++i) {
    EXPECT_EQ(asked[i].cost_model().name(), "m") << i;
    EXPECT_EQ(asked[i].cost_model().version(), 3) << i;
  }
}

TEST_F(ComparePlansTest, ComparesByTheObjectiveWhichBaselinesAreNotAskedFor) {
  auto plan = planner_.plan;
  planner_.plan = [plan](const v1::ShardPlanRequest& request, v1::ShardPlanResponse* response) {
    const grpc::Status status = plan(request, response);
    response->mutable_cost()->set_mean_of_max_ms(10);
    return status;
  };
  planner_.evaluation.mutable_cost()->set_mean_of_max_ms(30);
  EXPECT_EQ(Run({"plan", constrained_, "--planner", planner_.address(), "--compare", "size_greedy",
                 "--strategy", "refine", "--objective", "mean_of_max"}),
            0)
      << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("cost_ms  mean_of_max_ms  ratio"),
                          HasSubstr("refine (this plan)    7.500          10.000  1.000"),
                          HasSubstr("size_greedy          15.000          30.000  3.000")));
  const auto asked = planner_.requests();
  EXPECT_EQ(asked[0].search().objective(), "mean_of_max");
  EXPECT_EQ(asked[1].search().objective(), "");
  EXPECT_EQ(asked[2].search().objective(), "mean_of_max");
}

TEST_F(ComparePlansTest, SaysWhereTheModelCannotTellThePlansApart) {
  double low_ms = 6;
  auto plan = planner_.plan;
  planner_.plan = [&, plan](const v1::ShardPlanRequest& request, v1::ShardPlanResponse* response) {
    const grpc::Status status = plan(request, response);
    v1::PlanCost& cost = *response->mutable_cost();
    cost.set_interval_coverage(0.9);
    cost.mutable_interval()->set_low_ms(low_ms);
    cost.mutable_interval()->set_high_ms(9);
    return status;
  };
  planner_.evaluation.Clear();
  planner_.evaluation.set_legal(true);
  planner_.evaluation.mutable_cost()->set_embedding_cost_ms(8);
  const auto compared = [&] {
    EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--compare", "neuroshard"}),
              0)
        << err_;
    return out_;
  };
  EXPECT_THAT(compared(),
              HasSubstr("neuroshard: the costs differ by less than the model can tell"));
  planner_.evaluation.mutable_cost()->set_embedding_cost_ms(8.4);  // 12 % more
  EXPECT_THAT(compared(), Not(HasSubstr("can tell")));
  planner_.evaluation.mutable_cost()->set_embedding_cost_ms(7);
  low_ms = 7.1;
  EXPECT_THAT(compared(), Not(HasSubstr("can tell")));
}

TEST_F(ComparePlansTest, RefineObeysThem) {
  EXPECT_EQ(Run({"plan", constrained_, "--planner", planner_.address(), "--compare", "refine"}), 0);
  EXPECT_TRUE(planner_.requests()[1].has_constraints());
  EXPECT_THAT(out_, Not(HasSubstr("ignored")));
}

TEST_F(ComparePlansTest, AsJsonItIsPartOfThePlanWhichCanBeReadBack) {
  EXPECT_EQ(Run({"plan", constrained_, "--planner", planner_.address(), "--compare",
                 "size_greedy,random", "--format", "json"}),
            0);
  const auto json = nlohmann::json::parse(out_);
  ASSERT_EQ(json["comparison"].size(), 2u);
  EXPECT_EQ(json["comparison"][0]["cost_ratio"], 2.0);
  EXPECT_EQ(json["comparison"][0]["legal"], false);
  EXPECT_EQ(json["comparison"][0]["without_constraints"], true);
  EXPECT_EQ(json["comparison"][0]["violations"][0]["field"], "plan.tables[0]");
  EXPECT_THAT(json["comparison"][1]["failure"], HasSubstr("found none"));
  const std::string plan = Write("compared.json", out_);
  EXPECT_EQ(Run({"diff", plan_, plan}), 0) << err_;
}

TEST_F(ComparePlansTest, OtherFormatsKeepStdoutForThePlan) {
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--compare", "size_greedy",
                 "--strategy", "refine", "--format", "torchrec"}),
            0);
  EXPECT_TRUE(nlohmann::json::accept(out_));
  EXPECT_THAT(err_, HasSubstr("size_greedy          15.000"));
}

TEST_F(ComparePlansTest, WhatIsNoStrategyIsAUsageErrorBeforeAnythingIsAsked) {
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--compare",
                 "size_greedy,size_gredy"}),
            2);
  EXPECT_THAT(err_, AllOf(HasSubstr("\"size_gredy\" is no strategy"),
                          HasSubstr("did you mean size_greedy?"), HasSubstr("hugectr_auto")));
  EXPECT_THAT(out_, IsEmpty());
  EXPECT_EQ(planner_.calls(), 0);
}

TEST_F(ComparePlansTest, APlannerThatGoesAwayFailsTheCommand) {
  auto plan = planner_.plan;
  planner_.plan = [plan](const v1::ShardPlanRequest& request, v1::ShardPlanResponse* response) {
    if (request.search().strategy() == "basic") {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
    }
    return plan(request, response);
  };
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--timeout-s", "20",
                 "--compare", "basic"}),
            1);
  EXPECT_THAT(out_, IsEmpty());
  EXPECT_THAT(err_, HasSubstr("gone"));
}

}  // namespace
}  // namespace neuroshard
