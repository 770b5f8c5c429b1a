#include "server/search/refine/batch_descent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/batch_imbalance.h"
#include "server/evaluate/check_plan.h"
#include "server/search/refine/batch_prices.h"
#include "server/search/run_search.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/random_constraints.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::ConcaveComm;
using ::neuroshard::testing::ConcaveCompute;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::FakeCostModel;
using ::neuroshard::testing::RandomPlanRequest;

PlanRequest Asking(PlanRequest request, PlanObjective objective) {
  request.search.objective = objective;
  return request;
}

StatusOr<SearchResult> Searched(const PlanRequest& request, const CostModel& model,
                                PlanObjective objective) {
  const PlanRequest asked = Asking(request, objective);
  return RunSearch(asked, BoundTo(asked, model), NeverStop(), nullptr);
}

double MeanMs(const PlanRequest& request, const Plan& plan, const CostModel& model) {
  return MeanOfMaxMs(request, plan, BoundTo(request, model), NeverStop()).value().value();
}

// Pooling factors of `count` batches around each table's mean, which they keep.
void AddBatches(Random& random, int count, PlanRequest& request) {
  for (Table& table : request.tables) {
    double sum = 0;
    for (int b = 0; b < count; ++b) {
      table.batch_pooling_factors.push_back(table.pooling_factor * 2 * random.UniformReal());
      sum += table.batch_pooling_factors.back();
    }
    table.pooling_factor = sum / count;
  }
}

// Whole tables of equal size on two ranks or more.
PlanRequest WholeTablesWith(const std::vector<std::vector<double>>& batches, int num_ranks) {
  PlanRequest request;
  request.global_batch_size = 4096;
  for (int r = 0; r < num_ranks; ++r) request.topology.devices.push_back({0, 1LL << 40});
  for (const std::vector<double>& of_table : batches) {
    Table table;
    table.name = "t" + std::to_string(request.tables.size());
    table.num_embeddings = 100'000;
    table.embedding_dim = 64;
    table.batch_pooling_factors = of_table;
    for (const double factor : of_table) {
      table.pooling_factor += factor / static_cast<double>(of_table.size());
    }
    table.pooling_factor -= 1;  // Table's default
    request.tables.push_back(table);
  }
  request.constraints.sharding_types = {ShardingType::kTableWise};
  return request;
}

// The least mean of any placement of whole tables.
double LeastMeanMs(const PlanRequest& request, Plan plan, const CostModel& model) {
  double least_ms = std::numeric_limits<double>::infinity();
  const int ranks = request.topology.num_ranks();
  std::size_t placements = 1;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    placements *= static_cast<std::size_t>(ranks);
  }
  for (std::size_t p = 0; p < placements; ++p) {
    std::size_t digits = p;
    for (TablePlan& table : plan.tables) {
      table.shards.front().rank = static_cast<int>(digits % static_cast<std::size_t>(ranks));
      digits /= static_cast<std::size_t>(ranks);
    }
    least_ms = std::min(least_ms, MeanMs(request, plan, model));
  }
  return least_ms;
}

// By their means, {0, 1} and {2, 3} are even to the digit; but 0 and 1 are large in the same
// batches.
TEST(BatchDescentTest, TablesThatAreLargeInTheSameBatchesGoApart) {
  const PlanRequest request =
      WholeTablesWith({{18, 2.0}, {18.6, 2.6}, {2.1, 18.1}, {2.5, 18.5}}, 2);
  const auto model = MakeAnalyticCostModel();
  NS_ASSERT_OK_AND_ASSIGN(const SearchResult by_means,
                          Searched(request, *model, PlanObjective::kMaxOfMeans));
  NS_ASSERT_OK_AND_ASSIGN(const SearchResult by_batches,
                          Searched(request, *model, PlanObjective::kMeanOfMax));
  const auto rank_of = [](const SearchResult& result, std::size_t t) {
    return result.plan.tables[t].shards.front().rank;
  };
  EXPECT_EQ(rank_of(by_means, 0), rank_of(by_means, 1));
  EXPECT_NE(rank_of(by_batches, 0), rank_of(by_batches, 1));
  EXPECT_NE(rank_of(by_batches, 2), rank_of(by_batches, 3));
  EXPECT_LT(MeanMs(request, by_batches.plan, *model),
            0.75 * MeanMs(request, by_means.plan, *model));
  EXPECT_GT(by_batches.cost.embedding_cost_ms, by_means.cost.embedding_cost_ms);
}

TEST(BatchDescentTest, FindsTheBestPlacementOfAFewTablesOrOneThatIsClose) {
  Random random(71);
  int best = 0;
  for (int i = 0; i < 12; ++i) {
    std::vector<std::vector<double>> batches(5);
    for (std::vector<double>& of_table : batches) {
      for (int b = 0; b < 4; ++b) of_table.push_back(1 + 30 * random.UniformReal());
    }
    PlanRequest request = WholeTablesWith(batches, 3);
    request.search.refine_steps = 200;
    const ConcaveCostModel concave(static_cast<std::uint64_t>(i));
    const auto analytic = MakeAnalyticCostModel();
    const CostModel& model = i % 2 == 0 ? static_cast<const CostModel&>(concave) : *analytic;
    NS_ASSERT_OK_AND_ASSIGN(const SearchResult found,
                            Searched(request, model, PlanObjective::kMeanOfMax));
    const double ratio =
        MeanMs(request, found.plan, model) / LeastMeanMs(request, found.plan, model);
    EXPECT_GE(ratio, 1 - 1e-9);
    EXPECT_LT(ratio, 1.02);
    best += ratio < 1 + 1e-6 ? 1 : 0;
  }
  EXPECT_GE(best, 10);  // of 12
}

TEST(BatchDescentTest, IsLegalNeverDearerThanThePlanForTheMeansAndTheSameEveryTime) {
  Random random(72);
  double by_means_ms = 0;
  double by_batches_ms = 0;
  for (int i = 0; i < 30; ++i) {
    const ConcaveCostModel concave(static_cast<std::uint64_t>(i % 5));
    const auto analytic = MakeAnalyticCostModel();
    const CostModel& model = i % 3 == 0 ? static_cast<const CostModel&>(concave) : *analytic;
    PlanRequest request = RandomPlanRequest(random);
    if (i % 2 == 0) testing::AddRandomConstraints(random, request);
    request.search.refine_steps = 30;
    AddBatches(random, static_cast<int>(random.Between(1, 6)), request);
    const auto by_means = Searched(request, model, PlanObjective::kMaxOfMeans);
    const auto by_batches = Searched(request, model, PlanObjective::kMeanOfMax);
    ASSERT_EQ(by_means.ok(), by_batches.ok());
    if (!by_means.ok()) continue;
    EXPECT_TRUE(CheckPlan(request, by_batches->plan).empty());
    const double mean_ms = MeanMs(request, by_batches->plan, model);
    EXPECT_LE(mean_ms, MeanMs(request, by_means->plan, model));
    by_means_ms += MeanMs(request, by_means->plan, model);
    by_batches_ms += mean_ms;
    const auto again = Searched(request, model, PlanObjective::kMeanOfMax);
    EXPECT_EQ(again->plan, by_batches->plan);
  }
  EXPECT_LT(by_batches_ms, by_means_ms);
}

// Says stop from its `stop_at`-th poll on; 0: never.
class CountedStop final : public StopSignal {
 public:
  explicit CountedStop(int stop_at) : stop_at_(stop_at) {}
  bool ShouldStop() const override {
    ++polls_;
    return stopped();
  }
  bool stopped() const { return stop_at_ > 0 && polls_ >= stop_at_; }
  int polls() const { return polls_; }

 private:
  const int stop_at_;
  mutable int polls_ = 0;
};

// ConcaveCostModel that counts what it is asked after a stop.
class LateCallsModel final : public FakeCostModel {
 public:
  explicit LateCallsModel(const CountedStop& stop) : FakeCostModel(Named("late")), stop_(stop) {}

  int late_calls() const { return late_calls_; }

 protected:
  std::shared_ptr<const ComputeModel> MakeCompute() const override {
    return std::make_shared<const Compute>(stop_, late_calls_);
  }
  std::shared_ptr<const CommModel> MakeComm(const PricingConditions& conditions) const override {
    return std::make_shared<const ConcaveComm>(conditions);
  }

 private:
  class Compute final : public ComputeModel {
   public:
    Compute(const CountedStop& stop, int& late_calls) : stop_(stop), late_calls_(late_calls) {}
    int representation_width() const override { return ConcaveCompute::kWidth; }
    void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                   std::span<float> phi) const override {
      late_calls_ += stop_.stopped() ? 1 : 0;
      compute_.Represent(conditions, shards, phi);
    }
    void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
      compute_.Costs(sums, out);
    }

   private:
    const ConcaveCompute compute_{3, false};
    const CountedStop& stop_;
    int& late_calls_;
  };

  const CountedStop& stop_;
  mutable int late_calls_ = 0;
};

// A stop anywhere in the descent: one plan is priced to be handed out, and nothing in batches.
TEST(BatchDescentTest, AfterAStopNothingIsPricedAndWhatWasFoundIsHandedOut) {
  const ConcaveCostModel model(3);
  Random random(76);
  std::vector<std::vector<double>> batches(8);
  for (std::vector<double>& of_table : batches) {
    for (int b = 0; b < 6; ++b) of_table.push_back(1 + 60 * random.UniformReal());
  }
  PlanRequest request = WholeTablesWith(batches, 3);
  request.search.refine_steps = 40;
  const auto polls = [&](PlanObjective objective) {
    const CountedStop never(0);
    const PlanRequest asked = Asking(request, objective);
    EXPECT_TRUE(RunSearch(asked, BoundTo(asked, model), never, nullptr).ok());
    return never.polls();
  };
  const int first = polls(PlanObjective::kMaxOfMeans) + 1;  // the poll after the first search
  const int last = polls(PlanObjective::kMeanOfMax);
  ASSERT_GT(last, first + 50);
  request.search.objective = PlanObjective::kMeanOfMax;
  NS_ASSERT_OK_AND_ASSIGN(const SearchResult by_means,
                          Searched(request, model, PlanObjective::kMaxOfMeans));
  NS_ASSERT_OK_AND_ASSIGN(const SearchResult by_batches,
                          Searched(request, model, PlanObjective::kMeanOfMax));
  const double by_means_ms = MeanMs(request, by_means.plan, model);
  ASSERT_LT(MeanMs(request, by_batches.plan, model), 0.99 * by_means_ms);
  int found = 0;
  for (int at = first; at <= last; at += std::max(1, (last - first) / 40)) {
    const CountedStop stop(at);
    const LateCallsModel counting(stop);
    NS_ASSERT_OK_AND_ASSIGN(const SearchResult result,
                            RunSearch(request, BoundTo(request, counting), stop, nullptr));
    EXPECT_LE(counting.late_calls(), 1) << "stopped at poll " << at << " of " << last;
    const double mean_ms = MeanMs(request, result.plan, model);
    EXPECT_LE(mean_ms, by_means_ms);
    found += mean_ms < by_means_ms ? 1 : 0;
  }
  EXPECT_GT(found, 10);
}

TEST(BatchDescentTest, WhereBatchesAreAlikeBothObjectivesAreOne) {
  Random random(73);
  for (int i = 0; i < 10; ++i) {
    const ConcaveCostModel model;
    PlanRequest request = RandomPlanRequest(random, {.min_slack = 2});
    request.search.refine_steps = 60;
    for (Table& table : request.tables) table.batch_pooling_factors = {table.pooling_factor};
    NS_ASSERT_OK_AND_ASSIGN(const SearchResult by_means,
                            Searched(request, model, PlanObjective::kMaxOfMeans));
    NS_ASSERT_OK_AND_ASSIGN(const SearchResult by_batches,
                            Searched(request, model, PlanObjective::kMeanOfMax));
    EXPECT_DOUBLE_EQ(MeanMs(request, by_batches.plan, model), by_batches.cost.embedding_cost_ms);
    EXPECT_LE(by_batches.cost.embedding_cost_ms, by_means.cost.embedding_cost_ms);
  }
}

TEST(BatchDescentTest, TheBoundIsBelowEveryPlansMean) {
  Random random(74);
  const auto model = MakeAnalyticCostModel();
  for (int i = 0; i < 10; ++i) {
    PlanRequest request = RandomPlanRequest(random, {.min_slack = 2});
    request.search.refine_steps = 60;
    AddBatches(random, 5, request);
    NS_ASSERT_OK_AND_ASSIGN(const SearchResult found,
                            Searched(request, *model, PlanObjective::kMeanOfMax));
    const auto bound = LowerBoundOfMean(request, BoundTo(request, *model), NeverStop());
    ASSERT_TRUE(bound.has_value());
    EXPECT_EQ(bound->kind, BoundKind::kCertified);
    EXPECT_TRUE(bound->of_mean_of_max);
    EXPECT_GT(bound->cost_ms, 0);
    EXPECT_LE(bound->cost_ms, MeanMs(request, found.plan, *model) * (1 + 1e-6));
  }
}

TEST(BatchPricesTest, AreThoseOfThePlanAfterAnyMovesAndEstimatesAreExactWhereCostsAdd) {
  Random random(75);
  for (int i = 0; i < 20; ++i) {
    PlanRequest request = WholeTablesWith({{1, 9}, {4, 3}, {5, 5}, {8, 2}, {7, 1}, {3, 6}}, 3);
    const ConcaveCostModel concave;
    const auto analytic = MakeAnalyticCostModel();
    const CostModel& model = i % 2 == 0 ? static_cast<const CostModel&>(concave) : *analytic;
    NS_ASSERT_OK_AND_ASSIGN(SearchResult result,
                            Searched(request, model, PlanObjective::kMaxOfMeans));
    const BoundCostModel bound = BoundTo(request, model);
    BatchPrices prices(request, result.plan, bound, NeverStop());
    for (int m = 0; m < 10; ++m) {
      BatchMove move = {random.Below(6), BatchMove::kNone, random.Below(3)};
      if (m % 2 == 0) {
        move.back = random.Below(6);
        move.to = prices.shards()[move.back].rank;
      }
      if (prices.shards()[move.moved].rank == move.to) continue;
      const double estimate_ms = prices.Estimate(move);
      const double before_ms = prices.mean_ms();
      const BatchMove reverse = prices.Apply(move);
      prices.Apply(reverse);
      EXPECT_NEAR(prices.mean_ms(), before_ms, 1e-5 * before_ms);
      prices.Apply(move);
      if (i % 2 == 1) {
        EXPECT_NEAR(estimate_ms, prices.mean_ms(), 1e-5 * estimate_ms);
      }
      for (const BatchedShard& s : prices.shards()) {
        result.plan.tables[s.table].shards[s.shard].rank = static_cast<int>(s.rank);
      }
      EXPECT_NEAR(prices.mean_ms(), MeanMs(request, result.plan, model), 1e-5 * before_ms);
    }
  }
}

// The lookups of a rank, times a factor.
class FactorCompute final : public ComputeModel {
 public:
  explicit FactorCompute(float factor) : factor_(factor) {}
  int representation_width() const override { return 1; }
  void Represent(const PricingConditions& /*conditions*/, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      phi[i] = static_cast<float>(shards[i].pooling_factor);
    }
  }
  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
    for (std::size_t i = 0; i < sums.size(); ++i) out[i] = {.total_ms = factor_ * sums[i]};
  }

 private:
  const float factor_;
};

// Ranks 0 and 2 are of kind 0, rank 1 is of a kind that takes three times as long.
TEST(BatchPricesTest, EstimatesHaveARanksKindWhereItHoldsShards) {
  const PlanRequest request = WholeTablesWith({{1, 9}, {4, 3}, {5, 5}, {8, 2}}, 3);
  const auto kind = [&](float factor) {
    return BoundCostModel(ConditionsOf(request), {}, {ShardingType::kTableWise},
                          std::make_shared<const FactorCompute>(factor), CommOfOneRank());
  };
  const std::vector<BoundCostModel> kinds = {kind(1), kind(3)};
  const BoundCostModel model(kinds.front(), kinds, {0, 1, 0});
  Plan plan;
  plan.world_size = 3;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    TablePlan& table = plan.tables.emplace_back();
    table.name = request.tables[t].name;
    table.shards = {{.rows = 100'000, .cols = 64, .rank = t == 3 ? 1 : 0}};
  }
  BatchPrices prices(request, plan, model, NeverStop());
  const auto mean_ms = [&] {
    for (const BatchedShard& s : prices.shards()) {
      plan.tables[s.table].shards[s.shard].rank = static_cast<int>(s.rank);
    }
    return MeanOfMaxMs(request, plan, model, NeverStop()).value().value();
  };
  EXPECT_DOUBLE_EQ(prices.mean_ms(), (24 + 17) / 2.0);  // 3 x 8, then 9 + 3 + 5
  for (const BatchMove& move : {BatchMove{0, BatchMove::kNone, 1}, BatchMove{1, 0, 1}}) {
    const double estimate_ms = prices.Estimate(move);
    prices.Apply(move);
    EXPECT_NEAR(estimate_ms, prices.mean_ms(), 1e-5 * estimate_ms);
    EXPECT_NEAR(mean_ms(), prices.mean_ms(), 1e-5 * estimate_ms);
  }
  // Rank 1 holds shards 1 and 3, then nothing: what comes back to it is estimated as of kind 0.
  prices.Apply({1, BatchMove::kNone, 2});
  prices.Apply({3, BatchMove::kNone, 2});
  const BatchMove to_empty = {2, BatchMove::kNone, 1};
  const double estimate_ms = prices.Estimate(to_empty);
  prices.Apply(to_empty);
  EXPECT_NEAR(mean_ms(), prices.mean_ms(), 1e-5 * estimate_ms);
  EXPECT_LT(estimate_ms, prices.mean_ms());
}

}  // namespace
}  // namespace neuroshard
