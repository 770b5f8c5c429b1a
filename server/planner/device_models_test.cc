#include "server/planner/device_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/failure_reason.h"
#include "common/base/random.h"
#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/price_plan.h"
#include "server/planner/planner.h"
#include "server/search/run_search.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"
#include "tests/support/unsure_cost_model.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::ConcaveComm;
using ::neuroshard::testing::ConcaveCompute;
using ::neuroshard::testing::FakeComm;
using ::neuroshard::testing::FakeCompute;
using ::neuroshard::testing::FakeCostModel;
using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::RandomPlanRequest;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const char* const kFast = "h100-sxm";
const char* const kSlow = "v100-sxm-16gb";

CostModelInfo Info(std::string name, ModelProperties properties) {
  CostModelInfo info = FakeCostModel::Named(std::move(name));
  info.properties = properties;
  return info;
}

// ConcaveCompute of a seed, times a factor; intervals from 10% below to 30% above.
class DeviceCompute final : public ComputeModel {
 public:
  DeviceCompute(std::uint64_t seed, float factor) : compute_(seed, true), factor_(factor) {}

  int representation_width() const override { return ConcaveCompute::kWidth; }
  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override {
    compute_.Represent(conditions, shards, phi);
  }
  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
    compute_.Costs(sums, out);
    for (ComputeCost& cost : out) cost = cost * factor_;
  }
  std::vector<ComputeInterval> Intervals(const PricingConditions& /*conditions*/,
                                         const ShardSets& /*ranks*/,
                                         std::span<const ComputeCost> costs) const override {
    std::vector<ComputeInterval> intervals;
    for (const ComputeCost& cost : costs) {
      intervals.push_back(
          {.total = {0.9 * cost.total_ms, 1.3 * cost.total_ms},
           .forward = CostInterval{0.9 * cost.forward_ms, 1.3 * cost.forward_ms},
           .backward = CostInterval{0.9 * cost.backward_ms, 1.3 * cost.backward_ms}});
    }
    return intervals;
  }

 private:
  const ConcaveCompute compute_;
  const float factor_;
};

class SureComm final : public CommModel {
 public:
  explicit SureComm(const PricingConditions& conditions) : comm_(conditions) {}
  CommLoad Load(const ShardFeatures& shard) const override { return comm_.Load(shard); }
  void Costs(CommStage stage, std::span<const float> loads, std::span<const float> start_offsets_ms,
             std::span<float> cost_ms) const override {
    comm_.Costs(stage, loads, start_offsets_ms, cost_ms);
  }
  std::vector<CommInterval> Intervals(std::span<const RankComm> ranks) const override {
    std::vector<CommInterval> intervals;
    for (const RankComm& rank : ranks) {
      intervals.push_back(
          {{rank.forward_ms, rank.forward_ms}, {rank.backward_ms, rank.backward_ms}});
    }
    return intervals;
  }

 private:
  const ConcaveComm comm_;
};

class DeviceModelOf final : public FakeCostModel {
 public:
  DeviceModelOf(std::string name, std::uint64_t seed, float factor = 1, int only_ranks = 0)
      : FakeCostModel(MakeInfo(std::move(name), only_ranks)), seed_(seed), factor_(factor) {}

 protected:
  std::shared_ptr<const ComputeModel> MakeCompute() const override {
    return std::make_shared<const DeviceCompute>(seed_, factor_);
  }
  std::shared_ptr<const CommModel> MakeComm(const PricingConditions& conditions) const override {
    return std::make_shared<const SureComm>(conditions);
  }

 private:
  static CostModelInfo MakeInfo(std::string name, int only_ranks) {
    CostModelInfo info = Info(std::move(name), {.splits_compute = true, .interval_coverage = 0.9});
    if (only_ranks > 0) info.coverage.num_devices = {only_ranks};
    return info;
  }

  const std::uint64_t seed_;
  const float factor_;
};

// Tables and ranks by `seed`, each host a device in turn; kFast has model "fast", kSlow "slow".
PlanRequest FleetRequest(std::uint64_t seed, int max_tables = 4, int max_ranks = 3) {
  Random random(seed);
  PlanRequest request = RandomPlanRequest(random, {.max_tables = max_tables,
                                                   .max_ranks = max_ranks,
                                                   .dims = {4, 8, 16, 64},
                                                   .min_slack = 2,
                                                   .ranks_per_host = {1, 2}});
  Device last = request.topology.devices.back();
  ++last.host;
  request.topology.devices.push_back(last);
  for (Device& device : request.topology.devices) {
    device.name = device.host % 2 == 0 ? kFast : kSlow;
    device.memory_bytes = std::int64_t{1} << 30;
  }
  request.cost_model.name = "comm";
  request.search.refine_steps = 50;
  request.device_cost_models = {{kFast, {"fast", 0}}, {kSlow, {"slow", 0}}};
  return request;
}

class DeviceModelsTest : public ::testing::Test {
 protected:
  DeviceModelsTest() {
    Add("comm", 1);
    Add("fast", 2, 0.5F);
    Add("slow", 3, 2);
  }

  void Add(const std::string& name, std::uint64_t seed, float factor = 1, int only_ranks = 0) {
    models_[name] = std::make_shared<const DeviceModelOf>(name, seed, factor, only_ranks);
  }

  Planner MakePlanner() {
    return Planner(
        [this](
            const PlanRequest& request) -> StatusOr<std::vector<std::shared_ptr<const CostModel>>> {
          const auto found = models_.find(request.cost_model.name);
          if (found == models_.end()) {
            return WithReason(FailedPrecondition("no cost model {}", request.cost_model.name),
                              FailureReason::kNoModel);
          }
          return std::vector{found->second};
        },
        RunSearch, clock_);
  }

  PlanAnswer Plan(const PlanRequest& request) {
    auto answer = MakePlanner().MakePlan(request, never_, nullptr);
    EXPECT_THAT(answer, IsOk());
    return answer.ok() ? *std::move(answer) : PlanAnswer();
  }

  PlanAnswer Evaluate(const PlanRequest& request, const neuroshard::Plan& plan) {
    auto answer = MakePlanner().EvaluatePlan(request, plan);
    EXPECT_THAT(answer, IsOk());
    return answer.ok() ? *std::move(answer) : PlanAnswer();
  }

  BoundCostModel Bound(const PlanRequest& request) {
    const auto own = models_[request.cost_model.name];
    Pricing pricing = {own, own->Bind(ConditionsOf(request)).value()};
    EXPECT_TRUE(BindDevices(
                    request, [&](const CostModelRef& ref) { return models_[ref.name]; }, pricing)
                    .ok());
    return pricing.bound;
  }

  SteadyClock clock_;
  NeverStop never_;
  std::map<std::string, std::shared_ptr<const CostModel>> models_;
};

neuroshard::Plan WholeTables(const PlanRequest& request, const std::vector<int>& ranks) {
  neuroshard::Plan plan;
  plan.world_size = request.topology.num_ranks();
  plan.local_world_size = request.topology.ranks_per_host();
  for (std::size_t t = 0; t < ranks.size(); ++t) {
    const Table& table = request.tables[t];
    TablePlan& placed = plan.tables.emplace_back();
    placed.name = table.name;
    placed.module = table.module;
    placed.shards = {{.rows = table.num_embeddings, .cols = table.embedding_dim, .rank = ranks[t]}};
  }
  return plan;
}

// Each rank by the model of its kind, by hand.
TEST_F(DeviceModelsTest, ARankComputesAsTheModelOfItsDeviceSays) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const PlanRequest request = FleetRequest(seed);
    std::vector<int> ranks;
    for (std::size_t t = 0; t < request.tables.size(); ++t) {
      ranks.push_back(static_cast<int>((seed + t) % request.topology.devices.size()));
    }
    const neuroshard::Plan plan = WholeTables(request, ranks);
    const PlanCost cost = Evaluate(request, plan).cost;
    for (const DeviceCostModel& of : request.device_cost_models) {
      PlanRequest plain = request;
      plain.device_cost_models.clear();
      plain.cost_model = of.model;
      const PlanCost of_model = Evaluate(plain, plan).cost;
      for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
        if (request.topology.devices[r].name != of.device) continue;
        EXPECT_EQ(cost.ranks[r].compute_ms, of_model.ranks[r].compute_ms);
        EXPECT_EQ(cost.ranks[r].forward_compute_ms, of_model.ranks[r].forward_compute_ms);
        EXPECT_EQ(cost.ranks[r].intervals.compute, of_model.ranks[r].intervals.compute);
      }
    }
    PlanRequest plain = request;
    plain.device_cost_models.clear();
    const PlanCost own = Evaluate(plain, plan).cost;
    for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
      EXPECT_EQ(cost.ranks[r].backward_comm_ms, own.ranks[r].backward_comm_ms);
    }
    EXPECT_TRUE(cost.interval.has_value());
  }
}

// Whole tables on tiny fleets: local search finds the cheapest placement nearly always, and every
// search prices its plan as evaluation does.
TEST_F(DeviceModelsTest, SearchesFindTheCheapestOfAllPlacements) {
  int differs = 0;
  int cheapest = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    PlanRequest request = FleetRequest(seed);
    request.constraints.sharding_types = {ShardingType::kTableWise};
    const BoundCostModel bound = Bound(request);
    double best_ms = std::numeric_limits<double>::infinity();
    std::vector<int> ranks(request.tables.size(), 0);
    while (true) {
      const neuroshard::Plan plan = WholeTables(request, ranks);
      const PlanAnswer answer = Evaluate(request, plan);
      if (answer.violations.empty()) best_ms = std::min(best_ms, answer.cost.embedding_cost_ms);
      std::size_t t = 0;
      while (t < ranks.size() && ++ranks[t] == request.topology.num_ranks()) ranks[t++] = 0;
      if (t == ranks.size()) break;
    }
    const PlanAnswer refined = Plan(request);
    EXPECT_GE(refined.cost.embedding_cost_ms, best_ms * (1 - 1e-5));
    EXPECT_LE(refined.cost.embedding_cost_ms, best_ms * 1.05) << "seed " << seed;
    cheapest += refined.cost.embedding_cost_ms <= best_ms * (1 + 1e-5) ? 1 : 0;
    ASSERT_TRUE(refined.lower_bound.has_value());
    EXPECT_EQ(refined.lower_bound->kind, BoundKind::kReference);

    PlanRequest greedy = request;
    greedy.constraints = {};
    for (const char* strategy : {"neuroshard", "refine", "size_greedy"}) {
      greedy.search.strategy = strategy;
      const PlanAnswer answer = Plan(greedy);
      EXPECT_EQ(answer.cost.embedding_cost_ms, Evaluate(greedy, answer.plan).cost.embedding_cost_ms)
          << strategy;
    }
    PlanRequest plain = request;
    plain.device_cost_models.clear();
    differs += Plan(plain).plan != refined.plan ? 1 : 0;
  }
  EXPECT_GE(cheapest, 4);
  EXPECT_GT(differs, 0);
}

// The same model under another name is another kind, whose ranks cost the same; under its own name
// it is the request's.
TEST_F(DeviceModelsTest, KindsOfOneModelGiveThePlanOfOneModel) {
  Add("again", 1);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    PlanRequest request = FleetRequest(seed, 6, 4);
    for (const char* strategy : {"refine", "neuroshard"}) {
      request.search.strategy = strategy;
      PlanRequest plain = request;
      plain.device_cost_models.clear();
      const PlanAnswer expected = Plan(plain);
      EXPECT_THAT(expected.basis.devices, IsEmpty());
      request.device_cost_models = {{kFast, {"comm", 0}}, {kSlow, {"comm", 0}}};
      EXPECT_EQ(Bound(request).num_kinds(), 1);
      const PlanAnswer own = Plan(request);
      EXPECT_EQ(own.plan, expected.plan);
      EXPECT_EQ(own.cost, expected.cost);
      EXPECT_EQ(own.lower_bound, expected.lower_bound);
      request.device_cost_models = {{kSlow, {"again", 0}}};
      EXPECT_EQ(Bound(request).num_kinds(), 2);
      const PlanAnswer kinds = Plan(request);
      EXPECT_EQ(kinds.plan, expected.plan) << strategy << ", seed " << seed;
      EXPECT_EQ(kinds.cost, expected.cost);
    }
  }
}

TEST_F(DeviceModelsTest, AModelThatIsTwiceAsSlowIsHalfTheSpeed) {
  Add("half", 1, 2);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    PlanRequest request = FleetRequest(seed, 6, 4);
    request.device_cost_models = {{kSlow, {"half", 0}}};
    PlanRequest speeds = request;
    speeds.device_cost_models.clear();
    for (Device& device : speeds.topology.devices) {
      if (device.name == kSlow) device.compute_speed = 0.5;
    }
    const PlanAnswer answer = Plan(request);
    EXPECT_EQ(answer.cost, Evaluate(speeds, answer.plan).cost);
    const PlanAnswer of_speeds = Plan(speeds);
    EXPECT_EQ(of_speeds.cost, Evaluate(request, of_speeds.plan).cost);
    EXPECT_NEAR(answer.cost.embedding_cost_ms, of_speeds.cost.embedding_cost_ms,
                0.05 * of_speeds.cost.embedding_cost_ms);
    // Both at once: a quarter.
    for (Device& device : request.topology.devices) {
      if (device.name == kSlow) device.compute_speed = 0.5;
    }
    for (Device& device : speeds.topology.devices) {
      if (device.name == kSlow) device.compute_speed = 0.25;
    }
    EXPECT_EQ(Evaluate(request, answer.plan).cost, Evaluate(speeds, answer.plan).cost);
  }
}

TEST_F(DeviceModelsTest, TheOrderOfHostsAndOfEntriesDoesNotMatterForThePrice) {
  PlanRequest request = FleetRequest(3);
  request.topology.devices = {{0, 1 << 30, kFast}, {1, 1 << 30, kSlow}, {2, 1 << 30, kFast}};
  PlanRequest other = request;
  other.topology.devices = {{0, 1 << 30, kSlow}, {1, 1 << 30, kFast}, {2, 1 << 30, kFast}};
  std::reverse(other.device_cost_models.begin(), other.device_cost_models.end());
  const int moved_to[] = {1, 0, 2};
  std::vector<int> ranks;
  std::vector<int> other_ranks;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    ranks.push_back(static_cast<int>(t % 3));
    other_ranks.push_back(moved_to[t % 3]);
  }
  EXPECT_EQ(Evaluate(request, WholeTables(request, ranks)).cost.embedding_cost_ms,
            Evaluate(other, WholeTables(other, other_ranks)).cost.embedding_cost_ms);
}

TEST_F(DeviceModelsTest, ModelsThatMeasuredNoCommunicationPriceCompute) {
  Add("fast", 2, 0.5F, 1);
  PlanRequest request = FleetRequest(4);
  EXPECT_THAT(Plan(request).basis.devices.size(), 2);
  request.cost_model.name = "fast";
  EXPECT_THAT(MakePlanner().MakePlan(request, never_, nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("other rank counts")));
}

TEST_F(DeviceModelsTest, ModelsThatAreNotThereAndCannotPriceAreNamedAllAtOnce) {
  Add("slow", 3, 2, 7);  // not even one rank
  PlanRequest request = FleetRequest(4);
  request.device_cost_models[0].model.name = "gone";
  const auto answer = MakePlanner().MakePlan(request, never_, nullptr);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("device_cost_models[0].cost_model: no cost model "
                                               "gone"),
                                     HasSubstr("device_cost_models[1].cost_model: cost model slow "
                                               "prices other rank counts"))));
  EXPECT_EQ(ReasonOf(answer.status()), FailureReason::kNoModel);
}

TEST_F(DeviceModelsTest, TheAnswerSaysWhichModelPricedWhichRanks) {
  CostModelInfo slow = FakeCostModel::Named("slow");
  slow.version = 3;
  slow.coverage.global_batch_size = 7;
  slow.measured_with = {"Tesla V100-SXM2-16GB", "fbgemm", ""};
  models_["slow"] = std::make_shared<const FakeCostModel>(slow);
  models_["analytic"] = MakeAnalyticCostModel();
  PlanRequest request = FleetRequest(4);
  request.topology.devices = {
      {0, 1 << 30, kSlow}, {0, 1 << 30, kSlow}, {1, 1 << 30, kFast}, {2, 1 << 30, ""}};
  request.device_cost_models = {{kFast, {"analytic", 0}}, {kSlow, {"slow", 0}}};
  const PlanAnswer answer = Plan(request);
  EXPECT_THAT(answer.basis.devices,
              ElementsAre(DevicePriceBasis{kSlow, 2, "slow", 3, slow.measured_with},
                          DevicePriceBasis{kFast, 1, "analytic", 1, {}, BasisKind::kPublished},
                          DevicePriceBasis{"", 1, "comm", 1, {}}));
  EXPECT_EQ(answer.basis.kind, BasisKind::kMixed);
  EXPECT_EQ(answer.model.name, "comm");
  EXPECT_THAT(answer.basis.text,
              AllOf(HasSubstr("compute of v100-sxm-16gb (2 ranks) by slow version 3: prices rest "
                              "on measurements with fbgemm"),
                    HasSubstr("compute of h100-sxm (1 rank) by analytic version 1"),
                    HasSubstr("communication by comm version 1")));
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("v100-sxm-16gb: cost model slow version 3 was "
                                                  "measured at global batch size 7")));
  // "slow" has no intervals, so the plan has none.
  EXPECT_FALSE(answer.cost.interval.has_value());
}

}  // namespace
}  // namespace neuroshard
