#include "server/search/run_search.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/base/failure_reason.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/price_plan.h"
#include "server/search/placement/placement.h"
#include "server/search/testing/all_plans.h"
#include "server/search/testing/exhaustive_search.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::RandomPlanRequest;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RecordingObserver final : public SearchObserver {
 public:
  void OnImprovement(const SearchResult& result) override {
    improvements.push_back(result);
    if (stop_at_improvement != nullptr) stop_at_improvement->Stop();
  }
  void OnProgress(double share) override { progress.push_back(share); }

  std::vector<SearchResult> improvements;
  std::vector<double> progress;
  ManualStop* stop_at_improvement = nullptr;
};

// Says stop at the n-th poll.
class StopAtPoll final : public StopSignal {
 public:
  explicit StopAtPoll(int n) : left_(n) {}
  bool ShouldStop() const override { return left_ == 0 || --left_ == 0; }

 private:
  mutable int left_;
};

// NeuroShard's, which place whole tables.
const std::vector<std::string> kBaselines = {"random", "size_greedy", "dim_greedy", "lookup_greedy",
                                             "size_lookup_greedy"};

PlanRequest Roomy(std::uint64_t seed) {
  Random random(seed);
  PlanRequest request = RandomPlanRequest(
      random, {.max_tables = 10, .dims = {8, 16, 32, 64}, .min_slack = 4, .max_slack = 5});
  request.search.max_length = 3;
  request.search.refine_steps = 30;
  return request;
}

TEST(RunSearchTest, EveryPlanOfEveryStrategyIsLegalAndPricedAsPricePlanDoes) {
  Random random(21);
  int plans = 0;
  for (int i = 0; i < testing::Trials(2000); ++i) {
    const ConcaveCostModel model(static_cast<std::uint64_t>(i % 7));
    PlanRequest request = RandomPlanRequest(random);
    request.search.beam_width = 2;
    request.search.num_candidates = 3;
    request.search.max_length = 2;
    request.search.refine_steps = 5;
    if (i % 5 == 4) {  // hash tables: columns that are cut each have the keys
      for (std::size_t t = 0; t < request.tables.size(); t += 2) {
        request.tables[t].extra_bytes_per_row = 24;
        request.tables[t].allocated_rows = request.tables[t].num_embeddings * 5 / 4;
      }
    }
    // Counted, hidden and not priced; over links that make it as large as the rest.
    if (i % 3 > 0) {
      request.pipeline_type = i % 3 == 1 ? PipelineType::kNone : PipelineType::kTrainSparseDist;
      request.topology.bandwidths.intra_host_bytes_per_s = 1e6;
      request.topology.bandwidths.inter_host_bytes_per_s = 1e6;
    }
    for (const std::string_view strategy : kStrategyNames) {
      request.search.strategy = strategy;
      const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
      if (!result.ok()) {
        ASSERT_THAT(result, StatusIs(absl::StatusCode::kFailedPrecondition));
        continue;
      }
      ++plans;
      const std::vector<Violation> violations = CheckPlan(request, result->plan);
      ASSERT_THAT(violations, IsEmpty())
          << strategy << ", instance " << i << ": " << violations.front().field << " "
          << violations.front().description;
      NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost,
                              PricePlan(request, result->plan, BoundTo(request, model)));
      ASSERT_EQ(result->cost, cost);
      ASSERT_EQ(result->statistics.strategy, strategy);
      ASSERT_GE(result->statistics.plans_evaluated, 1);
      ASSERT_FALSE(result->statistics.time_limit_reached);
    }
  }
  EXPECT_GE(plans, testing::FewestCases(6001));
}

TEST(RunSearchTest, StrategiesThatDoNotKnowTheKernelsOfTheTrainerRefuseTablesThatAreTooWide) {
  PlanRequest request = Roomy(3);
  request.topology.compute_device = ComputeDevice::kCuda;
  for (Device& device : request.topology.devices) device.memory_bytes = std::int64_t{1} << 40;
  request.tables[1].embedding_dim = 4096;
  const ConcaveCostModel model;
  for (const std::string_view strategy : kStrategyNames) {
    request.search.strategy = strategy;
    const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    if (strategy == kObeysConstraints || IsOfAnotherTrainer(strategy)) {
      EXPECT_THAT(result, IsOk()) << strategy;
      continue;
    }
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("2048 columns"),
                                       HasSubstr("'" + request.tables[1].name + "'"))))
        << strategy;
  }
}

// A wide table decides what compute and communication cost, narrow ones with many ids what their
// distribution costs.
TEST(RunSearchTest, ADistributionOfIdsThatCountsIsOptimised) {
  PlanRequest request;
  request.topology.devices.assign(2, Device{.host = 0, .memory_bytes = 1 << 30});
  request.topology.bandwidths.intra_host_bytes_per_s = 1e9;
  for (int t = 0; t < 4; ++t) {
    Table& table = request.tables.emplace_back();
    table.name = "t" + std::to_string(t);
    table.num_embeddings = 1000;
    table.embedding_dim = t == 0 ? 256 : 4;
    table.pooling_factor = t == 0 ? 1 : 30;
  }
  request.constraints.sharding_types = {ShardingType::kTableWise};
  const ConcaveCostModel model;
  const auto cost_of_plan_for = [&](std::optional<PipelineType> pipeline) {
    PlanRequest asked = request;
    asked.pipeline_type = pipeline;
    const auto result = RunSearch(asked, BoundTo(asked, model), NeverStop(), nullptr);
    EXPECT_THAT(result, IsOk());
    asked.pipeline_type = PipelineType::kNone;
    return PricePlan(asked, result->plan, BoundTo(asked, model))->embedding_cost_ms;
  };
  const double optimised = cost_of_plan_for(PipelineType::kNone);
  EXPECT_LT(optimised, 0.99 * cost_of_plan_for(PipelineType::kTrainSparseDist));
  request.pipeline_type = PipelineType::kNone;
  EXPECT_NEAR(optimised, ExhaustiveSearch(request, BoundTo(request, model), 0).best_cost_ms,
              1e-4 * optimised);
}

TEST(RunSearchTest, BaselinesFindAPlanWhenWholeTablesFitAndCutOnlyWhatIsLargerThanEveryRank) {
  Random random(22);
  const ConcaveCostModel model;
  for (int i = 0; i < 200; ++i) {
    PlanRequest request = RandomPlanRequest(
        random, {.max_tables = 5, .max_ranks = 3, .min_slack = 0.9, .max_slack = 2});
    const ExhaustiveResult optimum = ExhaustiveSearch(request, BoundTo(request, model), 0);
    for (const std::string& strategy : kBaselines) {
      request.search.strategy = strategy;
      const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
      const bool must_cut = LeastPieces(request).size() > request.tables.size();
      if (must_cut) {
        ASSERT_FALSE(optimum.feasible);
        EXPECT_TRUE(!result.ok() || result->statistics.splits > 0) << strategy;
        continue;
      }
      ASSERT_EQ(result.ok(), optimum.feasible) << strategy << ", instance " << i;
      if (result.ok()) {
        EXPECT_EQ(result->statistics.splits, 0) << strategy;
        EXPECT_GE(result->cost.embedding_cost_ms, optimum.best_cost_ms * (1 - 1e-6));
      }
    }
  }
}

// Whichever strategy says so, and whatever types the model was made for.
TEST(RunSearchTest, OnlyWhereNoPlanOfAnyTypeExistsIsMemoryBlamedAlone) {
  Random random(26);
  const ConcaveCostModel model;
  int blamed = 0, possible = 0;
  for (int i = 0; i < testing::Trials(300); ++i) {
    PlanRequest request = RandomPlanRequest(
        random,
        {.max_tables = 2, .max_ranks = 4, .dims = {3, 4, 8}, .min_slack = 0.7, .max_slack = 1.4});
    const bool any = AnyPlanIsLegal(request, TypeSet::All());
    for (const std::string_view strategy : kStrategyNames) {
      request.search.strategy = strategy;
      const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
      if (result.ok()) continue;
      const bool says_none = ReasonOf(result.status()) == FailureReason::kOutOfMemory ||
                             Message(result.status()).starts_with("no plan can exist: table");
      ++(says_none ? blamed : possible);
      ASSERT_FALSE(says_none && any && strategy != kObeysConstraints)
          << strategy << ", instance " << i << ": " << result.status();
      ASSERT_FALSE(ReasonOf(result.status()) == FailureReason::kOutOfMemory && any)
          << "instance " << i << ": " << result.status();
    }
  }
  EXPECT_GE(blamed, testing::FewestCases(301));
  EXPECT_GE(possible, testing::FewestCases(301));
}

TEST(RunSearchTest, NeuroShardIsCheaperThanEveryBaselineOnAverage) {
  Random random(23);
  const ConcaveCostModel model;
  std::map<std::string, double> total_ms;
  for (int i = 0; i < 100; ++i) {
    PlanRequest request = RandomPlanRequest(
        random, {.max_tables = 20, .max_ranks = 4, .min_slack = 1.5, .max_slack = 3});
    request.search.max_length = 4;
    std::map<std::string, double> cost_ms;
    std::vector<std::string> strategies = kBaselines;
    strategies.push_back("neuroshard");
    for (const std::string& strategy : strategies) {
      request.search.strategy = strategy;
      const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
      if (result.ok()) cost_ms[strategy] = result->cost.embedding_cost_ms;
    }
    if (cost_ms.size() < strategies.size()) continue;
    for (const auto& [strategy, ms] : cost_ms) total_ms[strategy] += ms;
  }
  for (const auto& [strategy, ms] : total_ms) {
    if (strategy != "neuroshard" && strategy != "refine") {
      EXPECT_LT(total_ms["neuroshard"], ms) << strategy;
    }
  }
}

TEST(RunSearchTest, LessMemoryNeverGivesAnIllegalPlan) {
  Random random(24);
  const ConcaveCostModel model;
  for (int i = 0; i < testing::Trials(100); ++i) {
    PlanRequest request = RandomPlanRequest(random, {.min_slack = 2.0});
    request.search.max_length = 1;
    request.search.refine_steps = 5;
    for (const std::string_view strategy : kStrategyNames) {
      request.search.strategy = strategy;
      PlanRequest tighter = request;
      for (int step = 0; step < 6; ++step) {
        const auto result = RunSearch(tighter, BoundTo(tighter, model), NeverStop(), nullptr);
        if (result.ok()) {
          ASSERT_THAT(CheckPlan(tighter, result->plan), IsEmpty()) << strategy;
        }
        for (Device& device : tighter.topology.devices) {
          device.memory_bytes = device.memory_bytes * 4 / 5;
        }
      }
    }
  }
}

TEST(RunSearchTest, TheSameRequestGivesTheSamePlanWhoeverWatches) {
  const ConcaveCostModel model;
  for (const std::string_view strategy : kStrategyNames) {
    PlanRequest request = Roomy(5);
    request.search.strategy = strategy;
    RecordingObserver observer;
    NS_ASSERT_OK_AND_ASSIGN(const SearchResult first,
                            RunSearch(request, BoundTo(request, model), NeverStop(), nullptr));
    NS_ASSERT_OK_AND_ASSIGN(const SearchResult second,
                            RunSearch(request, BoundTo(request, model), NeverStop(), &observer));
    EXPECT_EQ(first, second) << strategy;
  }
}

TEST(RunSearchTest, TheSeedDecidesWhatRandomDoes) {
  const ConcaveCostModel model;
  PlanRequest request = Roomy(6);
  request.topology.devices.assign(4, {0, std::int64_t{1} << 40});
  request.search.strategy = "random";
  std::vector<Plan> distinct;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    request.search.seed = seed;
    NS_ASSERT_OK_AND_ASSIGN(const SearchResult result,
                            RunSearch(request, BoundTo(request, model), NeverStop(), nullptr));
    if (std::find(distinct.begin(), distinct.end(), result.plan) == distinct.end()) {
      distinct.push_back(result.plan);
    }
  }
  EXPECT_GT(distinct.size(), 5U);
}

TEST(RunSearchTest, TheObserverSeesEveryImprovementAndProgressUpToOne) {
  const ConcaveCostModel model;
  int improved = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    RecordingObserver observer;
    NS_ASSERT_OK_AND_ASSIGN(
        const SearchResult result,
        RunSearch(Roomy(seed), BoundTo(Roomy(seed), model), NeverStop(), &observer));
    ASSERT_FALSE(observer.improvements.empty());
    EXPECT_EQ(observer.improvements.back().plan, result.plan);
    EXPECT_EQ(observer.improvements.back().cost, result.cost);
    for (std::size_t i = 1; i < observer.improvements.size(); ++i) {
      EXPECT_LT(observer.improvements[i].cost.embedding_cost_ms,
                observer.improvements[i - 1].cost.embedding_cost_ms);
      ++improved;
    }
    EXPECT_TRUE(std::is_sorted(observer.progress.begin(), observer.progress.end()));
    EXPECT_EQ(observer.progress.back(), 1.0);
  }
  EXPECT_GT(improved, 5);
}

TEST(RunSearchTest, AStopBeforeTheFirstPlanIsDeadlineExceeded) {
  const ConcaveCostModel model;
  for (const std::string_view strategy : kStrategyNames) {
    PlanRequest request = Roomy(7);
    request.search.strategy = strategy;
    ManualStop stop;
    stop.Stop();
    EXPECT_THAT(RunSearch(request, BoundTo(request, model), stop, nullptr),
                StatusIs(absl::StatusCode::kDeadlineExceeded))
        << strategy;
  }
}

TEST(RunSearchTest, AStopAtTheFirstPlanReturnsThatPlan) {
  const ConcaveCostModel model;
  ManualStop stop;
  RecordingObserver observer;
  observer.stop_at_improvement = &stop;
  const PlanRequest request = Roomy(8);

  NS_ASSERT_OK_AND_ASSIGN(const SearchResult result,
                          RunSearch(request, BoundTo(request, model), stop, &observer));

  ASSERT_THAT(observer.improvements, SizeIs(1));
  EXPECT_EQ(result.plan, observer.improvements.front().plan);
  EXPECT_TRUE(result.statistics.time_limit_reached);
  EXPECT_THAT(CheckPlan(request, result.plan), IsEmpty());
}

TEST(RunSearchTest, WheneverItIsStoppedTheAnswerIsLegalOrDeadlineExceeded) {
  const ConcaveCostModel model;
  Random random(25);
  int cut_short = 0;
  for (int i = 0; i < 300; ++i) {
    PlanRequest request = RandomPlanRequest(random);
    request.search.strategy = "neuroshard";  // refine_demands_test.cc stops the other
    request.search.max_length = 3;
    const StopAtPoll stop(static_cast<int>(random.Between(1, 60)));
    const auto result = RunSearch(request, BoundTo(request, model), stop, nullptr);
    const auto unstopped = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    if (result.ok()) {
      EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty());
      cut_short += result->statistics.time_limit_reached;
      if (!result->statistics.time_limit_reached) {
        EXPECT_EQ(result->plan, unstopped->plan);
      }
    } else if (result.status().code() != absl::StatusCode::kDeadlineExceeded) {
      EXPECT_EQ(result.status(), unstopped.status());
    }
  }
  EXPECT_GT(cut_short, 30);
}

TEST(RunSearchTest, UnknownStrategiesAreNamedWithTheKnownOnes) {
  const ConcaveCostModel model;
  PlanRequest request = Roomy(9);
  request.search.strategy = "exhaustive";
  const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("'exhaustive'"), HasSubstr("size_lookup_greedy"))));
  const std::vector<Violation> violations = Violations::FromStatus(result.status());
  ASSERT_THAT(violations, SizeIs(1));
  EXPECT_EQ(violations.front().field, "search.strategy");
}

TEST(RunSearchTest, StrategiesOfOthersRefuseConstraintsAndPreviousPlans) {
  const ConcaveCostModel model;
  for (const std::string_view strategy : kStrategyNames) {
    if (strategy == "refine") continue;
    PlanRequest request = Roomy(11);
    request.search.strategy = strategy;
    request.constraints.max_tables_per_rank = 100;
    request.migration.emplace();
    const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    ASSERT_THAT(result, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'refine' does")));
    const std::vector<Violation> violations = Violations::FromStatus(result.status());
    ASSERT_THAT(violations, SizeIs(2)) << strategy;
    EXPECT_EQ(violations[0].field, "search.strategy");
    EXPECT_EQ(violations[1].field, "search.strategy");
    request = Roomy(11);
    request.search.strategy = strategy;
    request.tables[0].stash_weights = true;
    request.topology.host_memory_bytes.assign(request.topology.hosts().size(), 1);
    EXPECT_THAT(RunSearch(request, BoundTo(request, model), NeverStop(), nullptr),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("copies of stashed")));
  }
}

}  // namespace
}  // namespace neuroshard
