#include "server/planner/planner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/failure_reason.h"
#include "common/devices/device_table.h"
#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/price_plan.h"
#include "server/search/run_search.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_cost_model.h"
#include "tests/support/status_matchers.h"
#include "tests/support/unsure_cost_model.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeClock;
using ::neuroshard::testing::FakeComm;
using ::neuroshard::testing::FakeCostModel;
using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::StatusIs;
using ::neuroshard::testing::UnsureCostModel;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

PlanRequest TwoTablesOnTwoRanks() {
  PlanRequest request;
  request.tables.resize(2);
  request.tables[0].name = "a";
  request.tables[0].num_embeddings = 100;
  request.tables[0].embedding_dim = 8;
  request.tables[1] = request.tables[0];
  request.tables[1].name = "b";
  request.tables[1].embedding_dim = 4;
  request.topology.devices.assign(2, Device{.host = 0, .memory_bytes = 1 << 30});
  return request;
}

// Table a on `rank_of_a`, table b on rank 0.
Plan PlanWith(const PlanRequest& request, int rank_of_a) {
  Plan plan;
  plan.world_size = 2;
  plan.local_world_size = request.topology.ranks_per_host();
  for (const Table& table : request.tables) {
    TablePlan& placed = plan.tables.emplace_back();
    placed.name = table.name;
    placed.shards = {{.rows = table.num_embeddings,
                      .cols = table.embedding_dim,
                      .rank = table.name == "a" ? rank_of_a : 0}};
  }
  return plan;
}

class Recorder final : public PlanObserver {
 public:
  void OnImprovement(const PlanAnswer& answer) override { answers.push_back(answer); }
  void OnProgress(double share) override { shares.push_back(share); }
  std::vector<PlanAnswer> answers;
  std::vector<double> shares;
};

class PlannerTest : public ::testing::Test {
 protected:
  Planner MakePlanner(SearchFunction search) {
    return Planner(
        [this](
            const PlanRequest& request) -> StatusOr<std::vector<std::shared_ptr<const CostModel>>> {
          const CostModelRef& ref = request.cost_model;
          if (ref.name == kAnalyticKind && formulas_ != nullptr) return {{formulas_}};
          if (ref.name != "" && ref.name != "fake") {
            return FailedPrecondition("no cost model {}; there is fake", ref.name);
          }
          std::vector<std::shared_ptr<const CostModel>> models = {model_};
          models.insert(models.end(), others_.begin(), others_.end());
          return models;
        },
        std::move(search), clock_);
  }

  // A search that finds both tables on rank 0, then, 30 ms later each time, the given ranks for a.
  SearchFunction Scripted(std::vector<int> ranks_of_a) {
    return [this, ranks_of_a](const PlanRequest& request, const BoundCostModel& model,
                              const StopSignal& stop,
                              SearchObserver* observer) -> StatusOr<SearchResult> {
      SearchResult best;
      for (const int rank : ranks_of_a) {
        clock_.Advance(milliseconds(30));
        if (stop.ShouldStop()) {
          if (best.plan.tables.empty()) return absl::DeadlineExceededError("no plan yet");
          best.statistics.time_limit_reached = true;
          return best;
        }
        best.plan = PlanWith(request, rank);
        if (const auto cost = PricePlan(request, best.plan, model); cost.ok()) best.cost = *cost;
        observer->OnImprovement(best);
        observer->OnProgress(0.5);
      }
      return best;
    };
  }

  FakeClock clock_;
  std::shared_ptr<const CostModel> model_ = std::make_shared<FakeCostModel>();
  std::vector<std::shared_ptr<const CostModel>> others_;  // that stand in for it
  std::shared_ptr<const CostModel> formulas_;             // null: there are none
  NeverStop never_;
};

TEST_F(PlannerTest, WhatHoldsTheCostIsNamedAndUnderExplainPlannedWithout) {
  model_ = MakeAnalyticCostModel();
  PlanRequest request = TwoTablesOnTwoRanks();
  request.tables[0].embedding_dim = 256;
  request.constraints.sharding_types = {ShardingType::kTableWise};
  const Planner planner = MakePlanner(RunSearch);
  Recorder recorder;
  auto answer = planner.MakePlan(request, never_, &recorder);
  ASSERT_THAT(answer, IsOk());
  ASSERT_TRUE(answer->lower_bound && answer->lower_bound->limit);
  const CostLimit limit = *answer->lower_bound->limit;
  EXPECT_EQ(limit.table, "a");
  EXPECT_EQ(limit.rank, answer->plan.tables[0].shards[0].rank);
  EXPECT_THAT(limit.rules,
              ElementsAre(CostLimitRule{"constraints.sharding_types", "only table_wise"}));
  EXPECT_LT(*limit.bound_without_ms, answer->lower_bound->cost_ms);
  EXPECT_FALSE(limit.cost_without_ms.has_value());
  ASSERT_FALSE(recorder.answers.empty());
  EXPECT_FALSE(recorder.answers[0].lower_bound->limit.has_value());

  const auto evaluation = planner.EvaluatePlan(request, answer->plan);
  ASSERT_THAT(evaluation, IsOk());
  EXPECT_EQ(evaluation->lower_bound, answer->lower_bound);

  request.search.explain = true;
  answer = planner.MakePlan(request, never_, nullptr);
  ASSERT_THAT(answer, IsOk());
  const double without_ms = answer->lower_bound->limit->cost_without_ms.value();
  EXPECT_LT(without_ms, answer->cost.embedding_cost_ms);
  EXPECT_GE(without_ms, *limit.bound_without_ms * (1 - 1e-6));
}

TEST_F(PlannerTest, TheFirstPlanOfManyTablesDoesNotWaitForTheirBound) {
  model_ = MakeAnalyticCostModel();
  for (const int others : {997, 998}) {
    PlanRequest request = TwoTablesOnTwoRanks();
    for (Device& device : request.topology.devices) device.memory_bytes = std::int64_t{1} << 36;
    for (int i = 0; i < others; ++i) {
      request.tables.push_back(request.tables[1]);
      request.tables.back().name = fmt::format("other_{}", i);
    }
    Recorder recorder;
    const auto answer = MakePlanner(Scripted({0, 1})).MakePlan(request, never_, &recorder);
    ASSERT_THAT(answer, IsOk());
    ASSERT_THAT(recorder.answers, SizeIs(2));
    EXPECT_EQ(recorder.answers[0].lower_bound.has_value(), others == 997);
    EXPECT_TRUE(recorder.answers[1].lower_bound.has_value());
    EXPECT_TRUE(answer->lower_bound.has_value());
  }
}

TEST_F(PlannerTest, ReturnsTheSearchsPlanWithModelTimeAndWarnings) {
  CostModelInfo info;
  info.name = "fake";
  info.version = 4;
  info.coverage.global_batch_size = 7;
  model_ = std::make_shared<FakeCostModel>(info);
  PlanRequest request = TwoTablesOnTwoRanks();
  request.warnings = {"assumed a thing"};
  Recorder recorder;
  const auto answer = MakePlanner(Scripted({0, 1})).MakePlan(request, never_, &recorder);
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->plan, PlanWith(request, 1));
  EXPECT_EQ(answer->model, (CostModelRef{"fake", 4}));
  EXPECT_EQ(answer->search_ms, 60);
  ASSERT_TRUE(answer->lower_bound.has_value());
  EXPECT_EQ(answer->lower_bound->kind, BoundKind::kReference);
  EXPECT_THAT(answer->warnings, ElementsAre("assumed a thing", HasSubstr("batch size 7")));
  ASSERT_THAT(recorder.answers, SizeIs(2));
  EXPECT_EQ(recorder.answers[0].search_ms, 30);
  EXPECT_GT(recorder.answers[0].cost.embedding_cost_ms, answer->cost.embedding_cost_ms);
  EXPECT_EQ(recorder.answers[0].lower_bound, answer->lower_bound);
  EXPECT_THAT(recorder.shares, ElementsAre(0.5, 0.5));
}

TEST_F(PlannerTest, TheBudgetCutsTheOptimisationButNotTheFirstPlan) {
  PlanRequest request = TwoTablesOnTwoRanks();
  request.search.time_budget = milliseconds(30);
  const auto answer = MakePlanner(Scripted({0, 1, 0})).MakePlan(request, never_, nullptr);
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->plan, PlanWith(request, 0));
  EXPECT_TRUE(answer->statistics.time_limit_reached);
}

TEST_F(PlannerTest, ProgressIsAtLeastTheBudgetsShare) {
  PlanRequest request = TwoTablesOnTwoRanks();
  request.search.time_budget = milliseconds(75);
  Recorder recorder;
  ASSERT_THAT(MakePlanner(Scripted({0, 1, 0})).MakePlan(request, never_, &recorder), IsOk());
  // 0, 30 and 60 ms after the first plan; a search that says more is believed.
  EXPECT_THAT(recorder.shares,
              ElementsAre(0.5, 0.5, ::testing::DoubleEq(0.8), ::testing::DoubleEq(0.8)));
}

TEST_F(PlannerTest, NoClockCutsARefinementUnlessTheRequestHasATimeBudget) {
  PlanRequest request = TwoTablesOnTwoRanks();
  const Planner planner = MakePlanner(Scripted({0, 1, 0, 1, 0, 1}));  // 180 ms
  const auto is_cut = [&] {
    return planner.MakePlan(request, never_, nullptr)->statistics.time_limit_reached;
  };
  request.search.strategy = "refine";
  EXPECT_FALSE(is_cut());
  request.search.time_budget = milliseconds(500);
  EXPECT_FALSE(is_cut());
  request.search.time_budget = milliseconds(100);
  EXPECT_TRUE(is_cut());
}

TEST_F(PlannerTest, SaysThatASeedDoesNotDecideWhereAClockCut) {
  PlanRequest request = TwoTablesOnTwoRanks();
  const Planner planner = MakePlanner(Scripted({0, 1, 0, 1, 0, 1}));  // 180 ms
  const auto warnings = [&] { return planner.MakePlan(request, never_, nullptr)->warnings; };
  request.search.time_budget = milliseconds(100);
  EXPECT_THAT(warnings(), Not(Contains(HasSubstr("same request and seed"))));
  request.search.seed = 0;
  EXPECT_THAT(warnings(), Contains(HasSubstr("same request and seed")));
  request.search.time_budget.reset();
  EXPECT_THAT(warnings(), Not(Contains(HasSubstr("same request and seed"))));
}

TEST_F(PlannerTest, SaysWhatMovesAwayFromThePlanInPlace) {
  PlanRequest request = TwoTablesOnTwoRanks();
  request.migration.emplace().previous = PlanWith(request, 0);
  Recorder recorder;
  const auto answer = MakePlanner(Scripted({0, 1})).MakePlan(request, never_, &recorder);
  ASSERT_THAT(answer, IsOk());
  const MigrationReport table_a = {100 * 8 * 4, {{"a", 100 * 8 * 4}}};
  EXPECT_EQ(answer->migration, table_a);
  ASSERT_THAT(recorder.answers, SizeIs(2));
  EXPECT_EQ(recorder.answers[0].migration, MigrationReport());

  const auto evaluation = MakePlanner(Scripted({})).EvaluatePlan(request, PlanWith(request, 1));
  ASSERT_THAT(evaluation, IsOk());
  EXPECT_EQ(evaluation->migration, table_a);
  request.migration.reset();
  EXPECT_EQ(MakePlanner(Scripted({0})).MakePlan(request, never_, nullptr)->migration, std::nullopt);
}

TEST_F(PlannerTest, SaysWhatIsStashed) {
  PlanRequest request = TwoTablesOnTwoRanks();
  const std::int64_t a = 100 * 8 * 4, b = 100 * 4 * 4;
  const Planner planner = MakePlanner(Scripted({0}));
  EXPECT_EQ(planner.MakePlan(request, never_, nullptr)->stash, std::nullopt);
  request.tables[1].stash_weights = true;
  auto answer = planner.MakePlan(request, never_, nullptr);
  ASSERT_THAT(answer, IsOk());
  const std::int64_t all = answer->cost.ranks[0].memory.total_bytes();
  EXPECT_EQ(answer->stash, (StashReport{{"b"}, b, all - b, all}));

  // The planner adds what dense layers need: a, since b is too little.
  request.tables[1].stash_weights = false;
  const std::int64_t left = (1 << 30) - all;
  request.memory.dense_bytes = left + b + 1;
  answer = planner.MakePlan(request, never_, nullptr);
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->stash, (StashReport{{"a"}, a, all - a, all}));
  EXPECT_EQ(answer->cost.ranks[0].memory.stashed_bytes, a);
  EXPECT_EQ(answer->cost.ranks[1].memory.stashed_bytes, 0);
  auto evaluation = planner.EvaluatePlan(request, PlanWith(request, 0));
  ASSERT_THAT(evaluation, IsOk());
  EXPECT_EQ(evaluation->stash, answer->stash);
  EXPECT_THAT(evaluation->violations, IsEmpty());

  request.memory.dense_bytes = left + a + b + 1;
  const std::string short_of = "rank 0 keeps " + std::to_string(all - a - b);
  EXPECT_THAT(planner.MakePlan(request, never_, nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(short_of)));
  evaluation = planner.EvaluatePlan(request, PlanWith(request, 0));
  ASSERT_THAT(evaluation, IsOk());
  EXPECT_EQ(evaluation->stash, std::nullopt);
  ASSERT_THAT(evaluation->violations, SizeIs(1));
  EXPECT_THAT(evaluation->violations[0].description, HasSubstr(short_of));
  // Copies are where hosts say that there is room.
  request.memory.dense_bytes = left + b + 1;
  request.topology.host_memory_bytes = {a - 1};
  EXPECT_THAT(
      planner.MakePlan(request, never_, nullptr),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("copies of what has to be")));
}

TEST_F(PlannerTest, ExplainsTheFinalPlanWhereAskedAndThereIsTime) {
  PlanRequest request = TwoTablesOnTwoRanks();
  Recorder recorder;
  const Planner planner = MakePlanner(Scripted({0, 1}));
  EXPECT_THAT(planner.MakePlan(request, never_, nullptr)->explanations, IsEmpty());
  request.search.explain = true;
  const auto answer = planner.MakePlan(request, never_, &recorder);
  ASSERT_THAT(answer, IsOk());
  EXPECT_THAT(answer->explanations, SizeIs(2));
  EXPECT_THAT(recorder.answers.back().explanations, IsEmpty());
  EXPECT_THAT(planner.EvaluatePlan(request, answer->plan)->explanations, SizeIs(2));

  ManualStop stop;
  const auto cut = MakePlanner([&](const PlanRequest& r, const BoundCostModel& m,
                                   const StopSignal& s, SearchObserver* o) {
                     auto result = Scripted({0})(r, m, s, o);
                     stop.Stop();
                     return result;
                   }).MakePlan(request, stop, nullptr);
  ASSERT_THAT(cut, IsOk());
  EXPECT_THAT(cut->explanations, IsEmpty());
  EXPECT_THAT(cut->warnings, ElementsAre(HasSubstr("no time left to explain")));
}

// Communication costs a millisecond a host more, each way.
class HostCostModel final : public FakeCostModel {
 private:
  class Comm final : public FakeComm {
   public:
    explicit Comm(const PricingConditions& conditions)
        : FakeComm(conditions), host_ms_(static_cast<float>(conditions.hosts.size())) {}

    void Costs(CommStage stage, std::span<const float> loads,
               std::span<const float> start_offsets_ms, std::span<float> cost_ms) const override {
      FakeComm::Costs(stage, loads, start_offsets_ms, cost_ms);
      for (float& cost : cost_ms) cost += host_ms_;
    }

   private:
    const float host_ms_;
  };

  std::shared_ptr<const CommModel> MakeComm(const PricingConditions& conditions) const override {
    return std::make_shared<const Comm>(conditions);
  }
};

TEST_F(PlannerTest, EverythingOfARequestIsPricedAtItsConditions) {
  model_ = std::make_shared<HostCostModel>();
  PlanRequest request = TwoTablesOnTwoRanks();
  request.topology.devices[1].host = 1;
  request.search.explain = true;
  const Planner planner = MakePlanner(Scripted({0, 1}));
  const auto answer = planner.MakePlan(request, never_, nullptr);
  ASSERT_THAT(answer, IsOk());
  // 1.08 ms compute, 0.008 ms each way, 2 ms for two hosts, each way as FakeCostModel has it.
  EXPECT_NEAR(answer->cost.embedding_cost_ms, 5.096, 1e-6);
  const auto evaluation = planner.EvaluatePlan(request, answer->plan);
  ASSERT_THAT(evaluation, IsOk());
  EXPECT_EQ(evaluation->cost, answer->cost);
  EXPECT_EQ(evaluation->lower_bound, answer->lower_bound);
}

TEST_F(PlannerTest, FinalAnswersAndEvaluationsSayHowSureTheModelIs) {
  model_ = std::make_shared<UnsureCostModel>();
  const PlanRequest request = TwoTablesOnTwoRanks();
  Recorder recorder;
  const auto answer = MakePlanner(Scripted({0, 1})).MakePlan(request, never_, &recorder);
  ASSERT_THAT(answer, IsOk());
  ASSERT_TRUE(answer->cost.interval.has_value());
  EXPECT_LT(answer->cost.interval->low_ms, answer->cost.embedding_cost_ms);
  EXPECT_FALSE(recorder.answers.back().cost.interval.has_value());
  const auto evaluation = MakePlanner(Scripted({})).EvaluatePlan(request, answer->plan);
  ASSERT_THAT(evaluation, IsOk());
  EXPECT_EQ(evaluation->cost, answer->cost);
}

TEST_F(PlannerTest, AnswersHaveTheDistributionOfIdsAndTheMeanOverBatchesWhereAsked) {
  PlanRequest request = TwoTablesOnTwoRanks();
  const Planner planner = MakePlanner(Scripted({1}));
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer before, planner.MakePlan(request, never_, nullptr));
  EXPECT_FALSE(before.cost.ranks[0].input_dist_ms.has_value());
  EXPECT_FALSE(before.cost.mean_of_max_ms.has_value());

  request.pipeline_type = PipelineType::kNone;
  request.tables[0].batch_pooling_factors = {0, 10};
  request.tables[1].batch_pooling_factors = {10, 0};
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer answer, planner.MakePlan(request, never_, nullptr));
  EXPECT_GT(*answer.cost.ranks[0].input_dist_ms, 0);
  EXPECT_GT(answer.cost.embedding_cost_ms, before.cost.embedding_cost_ms);
  EXPECT_GT(*answer.cost.mean_of_max_ms, answer.cost.embedding_cost_ms);
  EXPECT_THAT(answer.basis.differences,
              Contains("the distribution of ids is a formula over default bandwidths of a "
                       "V100-class host"));
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer evaluation, planner.EvaluatePlan(request, answer.plan));
  EXPECT_EQ(evaluation.cost, answer.cost);
}

TEST_F(PlannerTest, TheBasisSaysWhichRowBlocksArePricedAsTheHottest) {
  PlanRequest request = TwoTablesOnTwoRanks();
  Plan plan = PlanWith(request, 1);
  plan.tables[0].sharding_type = ShardingType::kRowWise;
  plan.tables[0].shards = {{.rows = 50, .cols = 8},
                           {.row_offset = 50, .rows = 50, .cols = 8, .rank = 1}};
  const Planner planner = MakePlanner(Scripted({}));
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer even, planner.EvaluatePlan(request, plan));
  EXPECT_THAT(even.basis.differences, Not(Contains(HasSubstr("row blocks"))));
  request.tables[0].hot_row_blocks = true;
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer hot, planner.EvaluatePlan(request, plan));
  EXPECT_THAT(hot.basis.differences, Contains(HasSubstr("row blocks of 1 table are priced as")));
  request.tables[0].hot_row_blocks = false;
  request.tables[1].hot_row_blocks = true;  // whole
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer whole, planner.EvaluatePlan(request, plan));
  EXPECT_EQ(whole.basis.differences, even.basis.differences);
}

TEST_F(PlannerTest, TheBoundIsOfTheObjectiveThatIsAskedFor) {
  PlanRequest request = TwoTablesOnTwoRanks();
  request.tables[0].batch_pooling_factors = {0, 10};
  request.tables[1].batch_pooling_factors = {10, 0};
  const Planner planner = MakePlanner(Scripted({1}));
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer means, planner.MakePlan(request, never_, nullptr));
  ASSERT_TRUE(means.lower_bound.has_value());
  EXPECT_EQ(means.lower_bound->BoundedMs(means.cost), means.cost.embedding_cost_ms);

  request.search.objective = PlanObjective::kMeanOfMax;
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer answer, planner.MakePlan(request, never_, nullptr));
  ASSERT_TRUE(answer.lower_bound.has_value());
  EXPECT_EQ(answer.lower_bound->BoundedMs(answer.cost), *answer.cost.mean_of_max_ms);
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer evaluation, planner.EvaluatePlan(request, answer.plan));
  EXPECT_EQ(evaluation.lower_bound, answer.lower_bound);
}

// A sample of `shards` shards of 8 columns, looked up once a sample.
ComputeSample SetOf(std::size_t shards, std::int64_t batch_size) {
  ComputeSample set;
  set.shards.resize(shards);
  for (MeasuredShard& shard : set.shards) {
    shard.rows = 10;
    shard.cols = 8;
  }
  set.batch_size = batch_size;
  return set;
}

TEST_F(PlannerTest, PredictsSetsOfAnySizesAndConditionsInOrder) {
  model_ = std::make_shared<UnsureCostModel>();
  std::vector<ComputeSample> sets;
  for (const std::size_t shards : {1, 5000, 3, 4000, 200, 2}) {
    sets.push_back(SetOf(shards, shards == 3 ? 1 : 64));
  }
  const Planner planner = MakePlanner(Scripted({}));
  const auto answer = planner.Predict({"fake", 0}, sets, never_);
  ASSERT_THAT(answer, IsOk());
  ASSERT_THAT(answer->predictions, SizeIs(sets.size()));
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const double expected_ms = 1 + 0.08 * static_cast<double>(sets[i].shards.size());
    EXPECT_NEAR(answer->predictions[i].cost.total_ms, expected_ms, 1e-4 * expected_ms);
    EXPECT_NEAR(answer->predictions[i].interval->total.high_ms, 1.3 * expected_ms,
                1e-3 * expected_ms);
  }
  EXPECT_EQ(answer->interval_coverage, 0.9);

  ManualStop stop;
  stop.Stop();
  EXPECT_THAT(planner.Predict({}, sets, stop), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(planner.Predict({"h900", 0}, sets, never_),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(PlannerTest, ATableThatIsTooWideForTheTrainersKernelsIsCutAndWholeAViolation) {
  PlanRequest request = TwoTablesOnTwoRanks();
  request.tables[0].embedding_dim = 3840;
  const auto answer = MakePlanner(RunSearch).MakePlan(request, never_, nullptr);
  ASSERT_THAT(answer, IsOk());
  for (const Shard& shard : answer->plan.tables[0].shards) EXPECT_LE(shard.cols, 2048);
  const auto evaluated = MakePlanner(RunSearch).EvaluatePlan(request, PlanWith(request, 1));
  ASSERT_THAT(evaluated, IsOk());
  ASSERT_THAT(evaluated->violations, SizeIs(1));
  EXPECT_EQ(evaluated->violations[0].field, "plan.tables[0].shards[0].cols");

  // Of these kernels nothing is known to be too wide.
  CostModelInfo info;
  info.name = "fake";
  info.measured_with.backend = "neuroshard-cpu";
  model_ = std::make_shared<FakeCostModel>(info);
  EXPECT_THAT(MakePlanner(RunSearch).EvaluatePlan(request, PlanWith(request, 1))->violations,
              IsEmpty());
}

TEST_F(PlannerTest, AStopBeforeTheFirstPlanIsDeadlineExceeded) {
  ManualStop stop;
  stop.Stop();
  EXPECT_THAT(MakePlanner(Scripted({0})).MakePlan(TwoTablesOnTwoRanks(), stop, nullptr),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(PlannerTest, AnIllegalPlanIsInternalAndNobodySeesIt) {
  Recorder recorder;
  EXPECT_THAT(
      MakePlanner(Scripted({5})).MakePlan(TwoTablesOnTwoRanks(), never_, &recorder),
      StatusIs(absl::StatusCode::kInternal,
               AllOf(HasSubstr("illegal plan"), HasSubstr("plan.tables[0].shards[0].rank"))));
  EXPECT_THAT(recorder.answers, IsEmpty());
}

TEST_F(PlannerTest, ACostThatIsNoNumberIsInternal) {
  const auto search = [](const PlanRequest& request, const BoundCostModel&, const StopSignal&,
                         SearchObserver*) -> StatusOr<SearchResult> {
    SearchResult result;
    result.plan = PlanWith(request, 1);
    result.cost.embedding_cost_ms = std::numeric_limits<double>::quiet_NaN();
    return result;
  };
  EXPECT_THAT(MakePlanner(search).MakePlan(TwoTablesOnTwoRanks(), never_, nullptr),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("no finite cost")));
}

TEST_F(PlannerTest, RefusesModelsThatAreNotThereOrCannotPriceTheRanks) {
  PlanRequest request = TwoTablesOnTwoRanks();
  request.cost_model.name = "h900";
  EXPECT_THAT(MakePlanner(Scripted({0})).MakePlan(request, never_, nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("there is fake")));
  EXPECT_THAT(MakePlanner(Scripted({0})).EvaluatePlan(request, PlanWith(request, 0)),
              StatusIs(absl::StatusCode::kFailedPrecondition));

  CostModelInfo info;
  info.name = "fake";
  info.coverage.num_devices = {4, 8};
  model_ = std::make_shared<FakeCostModel>(info);
  request.cost_model.name = "";
  const auto unfit = MakePlanner(Scripted({0})).MakePlan(request, never_, nullptr);
  EXPECT_THAT(unfit, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rank counts")));
  EXPECT_EQ(ReasonOf(unfit.status()), FailureReason::kModelUnfit);
}

TEST_F(PlannerTest, EvaluationTellsLegalIllegalAndUnpriceablePlansApart) {
  const PlanRequest request = TwoTablesOnTwoRanks();
  const Planner planner = MakePlanner(Scripted({}));

  const auto legal = planner.EvaluatePlan(request, PlanWith(request, 1));
  ASSERT_THAT(legal, IsOk());
  EXPECT_THAT(legal->violations, IsEmpty());
  ASSERT_TRUE(legal->has_cost());
  EXPECT_TRUE(legal->lower_bound.has_value());
  // Rank 1 holds 8 columns: 1.08 ms compute, 0.008 ms each way; it enters last.
  EXPECT_NEAR(legal->cost.embedding_cost_ms, 1.096, 1e-6);

  Plan unaligned = PlanWith(request, 1);
  unaligned.tables[0].sharding_type = ShardingType::kColumnWise;
  unaligned.tables[0].shards = {{.rows = 100, .cols = 3, .rank = 0},
                                {.rows = 100, .col_offset = 3, .cols = 5, .rank = 1}};
  const auto illegal = planner.EvaluatePlan(request, unaligned);
  ASSERT_THAT(illegal, IsOk());
  EXPECT_THAT(illegal->violations, Not(IsEmpty()));
  EXPECT_TRUE(illegal->has_cost());

  const auto nonsense = planner.EvaluatePlan(request, PlanWith(request, 9));
  ASSERT_THAT(nonsense, IsOk());
  EXPECT_THAT(nonsense->violations, Not(IsEmpty()));
  EXPECT_FALSE(nonsense->has_cost());
  EXPECT_FALSE(nonsense->lower_bound.has_value());
}

TEST_F(PlannerTest, TheFirstModelThatCanPriceTheRequestDoesAndTheAnswerSaysWhy) {
  CostModelInfo measured = FakeCostModel::Named("measured");
  measured.coverage.num_devices = {4};
  model_ = std::make_shared<FakeCostModel>(measured);
  PlanRequest request = TwoTablesOnTwoRanks();
  for (Device& device : request.topology.devices) device.name = "h100-sxm";
  EXPECT_THAT(MakePlanner(Scripted({1})).MakePlan(request, never_, nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("other rank counts")));
  CostModelInfo formulas = FakeCostModel::Named("analytic");
  formulas.kind = kAnalyticKind;
  others_ = {std::make_shared<FakeCostModel>(formulas)};
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer answer,
                          MakePlanner(Scripted({1})).MakePlan(request, never_, nullptr));
  EXPECT_EQ(answer.model.name, "analytic");
  EXPECT_THAT(answer.basis.text,
              AllOf(HasSubstr("the request's figures for h100-sxm"),
                    HasSubstr("was measured on the device cannot price this request: ")));
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer evaluation,
                          MakePlanner(Scripted({1})).EvaluatePlan(request, PlanWith(request, 1)));
  EXPECT_EQ(evaluation.basis, answer.basis);
  others_.clear();
  model_ = std::make_shared<FakeCostModel>(formulas);
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer none,
                          MakePlanner(Scripted({1})).MakePlan(request, never_, nullptr));
  EXPECT_THAT(none.basis.text, HasSubstr("no cost model here was measured on"));
}

// A model of compute alone prices clusters of the device by the links of its host.
// The costs of a fake model are those of another, twice as much compute.
class DearCostModel final : public FakeCostModel {
 public:
  using FakeCostModel::FakeCostModel;

 protected:
  std::shared_ptr<const ComputeModel> MakeCompute() const override {
    class Twice final : public testing::FakeCompute {
     public:
      void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
        FakeCompute::Costs(sums, out);
        for (ComputeCost& cost : out) cost.total_ms *= 2;
      }
    };
    return std::make_shared<const Twice>();
  }
};

TEST_F(PlannerTest, AnswersHaveTheCostByTheFormulasBesidesThatOfTheModel) {
  CostModelInfo formulas = FakeCostModel::Named("analytic");
  formulas.kind = kAnalyticKind;
  formulas_ = std::make_shared<DearCostModel>(formulas);
  PlanRequest request = TwoTablesOnTwoRanks();
  Recorder recorder;
  const Planner planner = MakePlanner(Scripted({0, 1}));
  const auto answer = planner.MakePlan(request, never_, &recorder);
  ASSERT_THAT(answer, IsOk());
  const auto price = [&](const CostModel& model) {
    return PricePlan(request, answer->plan, testing::BoundTo(request, model))->embedding_cost_ms;
  };
  EXPECT_EQ(answer->analytic_cost_ms, price(*formulas_));
  EXPECT_EQ(answer->cost.embedding_cost_ms, price(*model_));
  EXPECT_GT(*answer->analytic_cost_ms, answer->cost.embedding_cost_ms);
  EXPECT_EQ(recorder.answers[0].analytic_cost_ms, std::nullopt);
  EXPECT_EQ(planner.EvaluatePlan(request, answer->plan)->analytic_cost_ms,
            answer->analytic_cost_ms);
  // What the formulas priced has no second figure.
  model_ = formulas_;
  EXPECT_EQ(planner.MakePlan(request, never_, nullptr)->analytic_cost_ms, std::nullopt);
  EXPECT_EQ(planner.EvaluatePlan(request, answer->plan)->analytic_cost_ms, std::nullopt);
}

TEST_F(PlannerTest, AModelOfOtherDevicesWarnsWithBothFigures) {
  CostModelInfo formulas = FakeCostModel::Named("analytic");
  formulas.kind = kAnalyticKind;
  formulas_ = std::make_shared<DearCostModel>(formulas);
  CostModelInfo cpu = FakeCostModel::Named("fake");
  cpu.measured_with.backend = "neuroshard-cpu";
  model_ = std::make_shared<FakeCostModel>(cpu);
  PlanRequest request = TwoTablesOnTwoRanks();
  request.cost_model.name = "fake";
  request.topology.compute_device = ComputeDevice::kCpu;
  const Planner planner = MakePlanner(Scripted({0}));
  EXPECT_THAT(planner.MakePlan(request, never_, nullptr)->warnings, IsEmpty());
  const auto warns = [&](const std::string& devices) {
    const auto answer = planner.MakePlan(request, never_, nullptr);
    return Contains(AllOf(
        HasSubstr("fake version 1 was not measured on " + devices),
        HasSubstr(fmt::format("costs {:.4g} ms by that model", answer->cost.embedding_cost_ms)),
        HasSubstr(fmt::format("and {:.4g} ms by TorchRec's formulas", *answer->analytic_cost_ms))));
  };
  request.topology.compute_device = ComputeDevice::kCuda;
  EXPECT_THAT(planner.MakePlan(request, never_, nullptr)->warnings, warns("cuda devices"));
  EXPECT_THAT(planner.EvaluatePlan(request, PlanWith(request, 0))->warnings, warns("cuda devices"));
  request.topology.compute_device.reset();
  for (Device& device : request.topology.devices) device.name = "h100-sxm";
  EXPECT_THAT(planner.MakePlan(request, never_, nullptr)->warnings, warns("h100-sxm"));

  // Some GPU is not known to be this GPU, unless whoever asks says so, or names the model.
  CostModelInfo gpu = FakeCostModel::Named("fake");
  gpu.measured_with.device = "NVIDIA H100 80GB HBM3";
  model_ = std::make_shared<FakeCostModel>(gpu);
  const auto doubts = [&] {
    return Contains(AllOf(HasSubstr("was measured on NVIDIA H100 80GB HBM3, and the request names "
                                    "no device (topology.hosts[].device): the plan costs"),
                          HasSubstr("by TorchRec's formulas")));
  };
  EXPECT_THAT(planner.MakePlan(request, never_, nullptr)->warnings, IsEmpty());
  for (Device& device : request.topology.devices) device.name = "";
  request.topology.compute_device = ComputeDevice::kCuda;
  EXPECT_THAT(planner.MakePlan(request, never_, nullptr)->warnings, IsEmpty());
  request.cost_model.name = "";
  EXPECT_THAT(planner.MakePlan(request, never_, nullptr)->warnings, doubts());
}

// Whoever has such a device takes the model by one word; whoever has not is not priced by it.
TEST_F(PlannerTest, FormulasNameTheDevicesThatThereAreMeasuredModelsOf) {
  CostModelInfo card = FakeCostModel::Named("card");
  card.measured_with.device = "NVIDIA H100 80GB HBM3";
  const auto measured = std::make_shared<const FakeCostModel>(card);
  const auto find = [&](const PlanRequest& request) {
    const bool named = DeviceNames(request.topology) == std::vector<std::string>{"h100-sxm"};
    return std::vector<std::shared_ptr<const CostModel>>{named ? measured : formulas_};
  };
  formulas_ = MakeAnalyticCostModel();
  const Planner planner(find, Scripted({1}), clock_);
  PlanRequest request = TwoTablesOnTwoRanks();
  const auto said = [&] { return planner.MakePlan(request, never_, nullptr)->basis.text; };
  const std::string hint =
      ", and naming the device h100-sxm takes a cost model that was measured on it";
  EXPECT_THAT(said(), EndsWith(hint));
  request.topology.compute_device = ComputeDevice::kCuda;
  EXPECT_THAT(said(), EndsWith("is the default for cuda devices" + hint));
  EXPECT_THAT(planner.EvaluatePlan(request, PlanWith(request, 0))->basis.text, EndsWith(hint));
  request.topology.compute_device = ComputeDevice::kCpu;
  EXPECT_THAT(said(), EndsWith("is the default for cpu devices"));
  request.topology.compute_device.reset();
  for (Device& device : request.topology.devices) device.name = "a100-sxm-80gb";
  EXPECT_THAT(said(), EndsWith("measured on the request's device"));
}

TEST_F(PlannerTest, ModelsWithoutCommunicationGetTheLinksOfTheRequestsDevices) {
  PlanRequest request = TwoTablesOnTwoRanks();
  for (Device& device : request.topology.devices) device.name = "h100-sxm";
  request.topology.fabric = Fabric{"links", {5, 1e9}, {12, 1e9}};
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer slow,
                          MakePlanner(Scripted({1})).MakePlan(request, never_, nullptr));
  EXPECT_EQ(slow.basis.kind, BasisKind::kMixed);
  EXPECT_THAT(slow.warnings, Contains(HasSubstr("communication is not measured (fabric links)")));
  request.topology.fabric->intra_host.bytes_per_s = 1e12;
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer fast,
                          MakePlanner(Scripted({1})).MakePlan(request, never_, nullptr));
  EXPECT_LT(fast.cost.ranks[0].forward_comm_ms, slow.cost.ranks[0].forward_comm_ms);
  CostModelInfo measured = FakeCostModel::Named("fake");
  measured.coverage.num_devices = {2};
  model_ = std::make_shared<FakeCostModel>(measured);
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer own,
                          MakePlanner(Scripted({1})).MakePlan(request, never_, nullptr));
  EXPECT_EQ(own.basis.kind, BasisKind::kMeasured);
}

}  // namespace
}  // namespace neuroshard
