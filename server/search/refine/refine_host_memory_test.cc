// `refine` where tables may be in host memory or on SSD, against every plan of tiny requests and
// against simple ways to choose kernels.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/base/failure_reason.h"
#include "common/base/random.h"
#include "common/base/stop_signal.h"
#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/price_plan.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/conflict/infeasibility.h"
#include "server/search/run_search.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/fake_cost_model.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kNone = std::numeric_limits<double>::infinity();

// Hosts of 2 ranks; devices have `device_share` of all weights together, hosts `host_share`.
PlanRequest Request(Random& random, int tables, int ranks, double device_share, double host_share) {
  PlanRequest request;
  request.global_batch_size = 512 * ranks;
  request.memory.rule = MemoryRule::kWeightsOnly;
  request.constraints.sharding_types = {ShardingType::kTableWise};
  double bytes = 0;
  for (int t = 0; t < tables; ++t) {
    Table& table = request.tables.emplace_back();
    table.name = "t" + std::to_string(t);
    table.num_embeddings = static_cast<std::int64_t>(std::pow(10, 3 + 2 * random.UniformReal()));
    table.embedding_dim = std::int64_t{16} << random.Below(3);
    table.pooling_factor = std::pow(10, 1.5 * random.UniformReal());
    bytes += 4.0 * static_cast<double>(table.num_embeddings * table.embedding_dim);
  }
  for (int r = 0; r < ranks; ++r) {
    request.topology.devices.push_back(
        {r / 2, static_cast<std::int64_t>(device_share * bytes / ranks)});
  }
  const int hosts = (ranks + 1) / 2;
  request.topology.host_memory_bytes.assign(static_cast<std::size_t>(hosts),
                                            static_cast<std::int64_t>(host_share * bytes / hosts));
  return request;
}

// The same, with SSDs that have `ssd_share` and are read at half the speed of host memory, and leave
// for some tables to be there.
PlanRequest SsdRequest(Random& random, int tables, int ranks, double device_share,
                       double host_share, double ssd_share) {
  PlanRequest request = Request(random, tables, ranks, device_share, host_share);
  double bytes = 0;
  TableRule rule;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    const Table& table = request.tables[t];
    bytes += 4.0 * static_cast<double>(table.num_embeddings * table.embedding_dim);
    if (random.Below(4) > 0) rule.tables.push_back(static_cast<int>(t));
  }
  if (host_share == 0) request.topology.host_memory_bytes.clear();
  const int hosts = (ranks + 1) / 2;
  request.topology.ssd_bytes.assign(static_cast<std::size_t>(hosts),
                                    static_cast<std::int64_t>(ssd_share * bytes / hosts));
  request.topology.bandwidths.ssd_bytes_per_s =
      0.05 * request.topology.bandwidths.host_to_device_bytes_per_s;
  rule.compute_kernels = {ComputeKernel::kFused, ComputeKernel::kFusedUvm,
                          ComputeKernel::kFusedUvmCaching, ComputeKernel::kKeyValue};
  if (!rule.tables.empty()) request.constraints.tables.push_back(std::move(rule));
  return request;
}

bool HasRowsOnSsd(const Plan& plan) {
  return std::any_of(plan.tables.begin(), plan.tables.end(), [](const TablePlan& table) {
    return TierOf(table.compute_kernel) == MemoryTier::kSsd;
  });
}

// Leave to use SSDs taken back.
PlanRequest WithoutSsds(PlanRequest request) {
  request.topology.ssd_bytes.clear();
  return request;
}

StatusOr<SearchResult> Search(const PlanRequest& request, const StopSignal& stop = NeverStop()) {
  return RunSearch(request, BoundTo(request, *MakeAnalyticCostModel()), stop, nullptr);
}

// Each table whole on a rank in a residency of `rules`.
struct Choice {
  int rank = 0;
  int residency = 0;
};

Plan PlanOf(const PlanRequest& request, const CompiledRules& rules,
            const std::vector<Choice>& choices) {
  Plan plan;
  plan.world_size = request.topology.num_ranks();
  plan.local_world_size = request.topology.ranks_per_host();
  for (std::size_t t = 0; t < choices.size(); ++t) {
    const Table& table = request.tables[t];
    const Residency& residency = rules.residency(choices[t].residency);
    plan.tables.push_back({table.name,
                           "",
                           ShardingType::kTableWise,
                           residency.kernel,
                           {{0, table.num_embeddings, 0, table.embedding_dim, choices[t].rank}},
                           {},
                           residency.cache_load_factor});
  }
  return plan;
}

// Everything about whole tables, once; under `analytic` a rank costs the sum of its shards.
class WholeTables {
 public:
  explicit WholeTables(const PlanRequest& request)
      : request_(request), rules_(request, {ShardingType::kTableWise}) {
    const BoundCostModel model = BoundTo(request, *MakeAnalyticCostModel());
    for (std::size_t t = 0; t < request.tables.size(); ++t) {
      std::vector<One>& of = ones_.emplace_back();
      for (std::size_t r = 0; r < rules_.residencies().size(); ++r) {
        std::vector<Choice> choices(request.tables.size());
        choices[t].residency = static_cast<int>(r);
        Plan plan = PlanOf(request, rules_, choices);
        plan.tables = {plan.tables[t]};
        const PlanCost cost = *PricePlan(request, plan, model);
        const MemoryUse& use = cost.ranks[0].memory;
        of.push_back({cost.embedding_cost_ms, use.total_bytes(), use.by_tier()[MemoryTier::kHost],
                      use.by_tier()[MemoryTier::kSsd]});
      }
    }
  }

  struct One {
    double cost_ms;
    std::int64_t bytes;
    std::int64_t host_bytes;
    std::int64_t ssd_bytes;
  };

  const CompiledRules& rules() const { return rules_; }
  const One& one(std::size_t table, int residency) const {
    return ones_[table][static_cast<std::size_t>(residency)];
  }

  // The least cost over all residencies and places; kNone: nothing is legal.
  double Best() {
    Begin();
    best_ms_ = kNone;
    Try(0);
    return best_ms_;
  }

  // Tables in descending price, each to the cheapest rank with room; kNone: one has none.
  double Greedy(const std::vector<int>& residencies) {
    Begin();
    std::vector<std::size_t> order;
    for (std::size_t t = 0; t < residencies.size(); ++t) order.push_back(t);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return one(a, residencies[a]).cost_ms > one(b, residencies[b]).cost_ms;
    });
    for (const std::size_t t : order) {
      int best = -1;
      for (std::size_t r = 0; r < cost_.size(); ++r) {
        const int rank = static_cast<int>(r);
        if (Fits(one(t, residencies[t]), rank) &&
            (best < 0 || cost_[r] < cost_[static_cast<std::size_t>(best)])) {
          best = rank;
        }
      }
      if (best < 0) return kNone;
      Put(one(t, residencies[t]), best, 1);
    }
    return *std::max_element(cost_.begin(), cost_.end());
  }

 private:
  void Begin() {
    cost_.assign(request_.topology.devices.size(), 0);
    left_.clear();
    for (const Device& device : request_.topology.devices) left_.push_back(device.memory_bytes);
    const std::vector<std::int64_t> none(rules_.hosts().size(), 0);
    const Topology& topology = request_.topology;
    host_left_ = topology.host_memory_bytes.empty() ? none : topology.host_memory_bytes;
    ssd_left_ = topology.ssd_bytes.empty() ? none : topology.ssd_bytes;
  }
  bool Fits(const One& one, int rank) const {
    const std::size_t host = static_cast<std::size_t>(rules_.host_of(rank));
    return one.bytes <= left_[static_cast<std::size_t>(rank)] &&
           one.host_bytes <= host_left_[host] && one.ssd_bytes <= ssd_left_[host];
  }
  void Put(const One& one, int rank, int sign) {
    cost_[static_cast<std::size_t>(rank)] += sign * one.cost_ms;
    left_[static_cast<std::size_t>(rank)] -= sign * one.bytes;
    host_left_[static_cast<std::size_t>(rules_.host_of(rank))] -= sign * one.host_bytes;
    ssd_left_[static_cast<std::size_t>(rules_.host_of(rank))] -= sign * one.ssd_bytes;
  }
  void Try(std::size_t t) {
    const double most = *std::max_element(cost_.begin(), cost_.end());
    if (most >= best_ms_) return;
    if (t == ones_.size()) {
      best_ms_ = most;
      return;
    }
    for (std::size_t r = 0; r < cost_.size(); ++r) {
      for (const int residency : *rules_.of(static_cast<int>(t)).residencies) {
        const One& one = this->one(t, residency);
        if (!Fits(one, static_cast<int>(r))) continue;
        Put(one, static_cast<int>(r), 1);
        Try(t + 1);
        Put(one, static_cast<int>(r), -1);
      }
    }
  }

  const PlanRequest& request_;
  const CompiledRules rules_;
  std::vector<std::vector<One>> ones_;  // by table and residency
  std::vector<double> cost_;
  std::vector<std::int64_t> left_;
  std::vector<std::int64_t> host_left_;
  std::vector<std::int64_t> ssd_left_;
  double best_ms_ = kNone;
};

TEST(RefineHostMemoryTest, APlanIsFoundWhereverThereIsOneAndTinyOnesAreTheBest) {
  int none = 0;
  double worst = 1;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    PlanRequest request =
        Request(random, 3, 2, 0.1 + 0.9 * random.UniformReal(), 1.2 * random.UniformReal());
    request.search.refine_steps = 200;
    WholeTables whole(request);
    const double best_ms = whole.Best();
    const auto result = Search(request);
    ASSERT_EQ(result.ok(), best_ms < kNone) << seed << ' ' << result.status();
    // No proof is wrong, and all of so few plans can be tried.
    EXPECT_EQ(ProveInfeasible(request, NeverStop()).has_value(), best_ms == kNone) << seed;
    if (!result.ok()) {
      ++none;
      continue;
    }
    EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty()) << seed;
    worst = std::max(worst, result->cost.embedding_cost_ms / best_ms);
  }
  EXPECT_GT(none, 5);
  EXPECT_LT(none, 40);
  EXPECT_LT(worst, 1 + 1e-5);
}

TEST(RefineHostMemoryTest, WithSsdsAPlanIsFoundWhereverThereIsOneAndTinyOnesAreTheBest) {
  int none = 0, on_ssd = 0, only_with_ssd = 0;
  for (std::uint64_t seed = 0; seed < 90; ++seed) {
    Random random(seed);
    const double device_share = 0.1 + 0.9 * random.UniformReal();
    const double host_share = random.Below(3) == 0 ? 0 : random.UniformReal();
    PlanRequest request =
        SsdRequest(random, 3, 2, device_share, host_share, 1.2 * random.UniformReal());
    request.search.refine_steps = 200;
    WholeTables whole(request);
    const double best_ms = whole.Best();
    const auto result = Search(request);
    ASSERT_EQ(result.ok(), best_ms < kNone) << seed << ' ' << result.status();
    EXPECT_EQ(ProveInfeasible(request, NeverStop()).has_value(), best_ms == kNone) << seed;
    if (!result.ok()) {
      ++none;
      continue;
    }
    EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty()) << seed;
    EXPECT_LT(result->cost.embedding_cost_ms, best_ms * (1 + 1e-5)) << seed;
    if (HasRowsOnSsd(result->plan)) ++on_ssd;
    const PlanRequest without = WithoutSsds(request);
    const auto beside = Search(without);
    if (!beside.ok()) {
      ++only_with_ssd;
      continue;
    }
    EXPECT_LE(result->cost.embedding_cost_ms, beside->cost.embedding_cost_ms) << seed;
  }
  EXPECT_GT(none, 5);
  EXPECT_LT(none, 60);
  EXPECT_GT(on_ssd, 10);
  EXPECT_GT(only_with_ssd, 5);
}

TEST(RefineHostMemoryTest, LeaveToUseSsdsMakesNoPlanDearer) {
  int on_ssd = 0, cheaper = 0;
  for (int seed = 0; seed < testing::Trials(6); ++seed) {
    Random random(100 + seed);
    PlanRequest request = SsdRequest(random, 20, 4, 0.35, 0.7, 1);
    request.search.effort = SearchEffort::kQuick;
    request.constraints.sharding_types = {ShardingType::kTableWise, ShardingType::kColumnWise,
                                          ShardingType::kRowWise};
    const auto with = Search(request);
    const auto without = Search(WithoutSsds(request));
    ASSERT_TRUE(with.ok() && without.ok()) << seed;
    EXPECT_THAT(CheckPlan(request, with->plan), IsEmpty()) << seed;
    EXPECT_LE(with->cost.embedding_cost_ms, without->cost.embedding_cost_ms) << seed;
    if (HasRowsOnSsd(with->plan)) ++on_ssd;
    if (with->cost.embedding_cost_ms < 0.999 * without->cost.embedding_cost_ms) ++cheaper;
  }
  EXPECT_GE(on_ssd, testing::FewestCases(1));
  EXPECT_GE(cheaper, testing::FewestCases(1));
}

// Time that is left the first times that somebody asks.
class SomeTimeLeft final : public StopSignal {
 public:
  bool ShouldStop() const override { return false; }
  bool HasTimeLeft() const override { return ++asked < 3; }

  mutable std::atomic<int> asked = 0;
};

// The devices have room for twice the tables, and none for the one that may not be cut.
TEST(RefineHostMemoryTest, TheSearchOnDevicesAloneTakesNoTimeOfTheNext) {
  Random random(7);
  PlanRequest request = Request(random, 3, 8, 1, 4);
  request.constraints.sharding_types.clear();
  TableRule& rule = request.constraints.tables.emplace_back();
  rule.tables = {0};
  rule.sharding_types = {ShardingType::kTableWise};
  request.tables[0].num_embeddings = 1'000'000;
  const std::int64_t bytes = 4 * request.tables[0].num_embeddings * request.tables[0].embedding_dim;
  for (Device& device : request.topology.devices) device.memory_bytes = bytes / 2;
  for (std::int64_t& of_host : request.topology.host_memory_bytes) of_host = 4 * bytes;
  const SomeTimeLeft stop;
  const auto result = Search(request, stop);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(TierOf(result->plan.tables[0].compute_kernel), MemoryTier::kHost);
  EXPECT_EQ(stop.asked, 0);
}

TEST(RefineHostMemoryTest, SsdsTakeWhatDevicesAndHostsDoNot) {
  for (int seed = 0; seed < testing::Trials(4); ++seed) {
    Random random(200 + seed);
    PlanRequest request = SsdRequest(random, 30, 8, 0.1, 0.2, 2);
    request.search.effort = SearchEffort::kQuick;
    request.constraints.tables[0].tables.clear();
    for (int t = 0; t < 30; ++t) request.constraints.tables[0].tables.push_back(t);
    request.constraints.sharding_types = {ShardingType::kTableWise, ShardingType::kColumnWise,
                                          ShardingType::kRowWise, ShardingType::kTableRowWise};
    ASSERT_FALSE(Search(WithoutSsds(request)).ok()) << seed;
    const auto result = Search(request);
    ASSERT_TRUE(result.ok()) << seed << ' ' << result.status();
    EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty()) << seed;
    EXPECT_TRUE(HasRowsOnSsd(result->plan)) << seed;
    EXPECT_EQ(Search(request)->plan, result->plan) << seed;
  }
}

// By models that price exchanges a plan of one sharding type comes first. No stage may begin with
// one in memories that it does not know.
TEST(RefineHostMemoryTest, PlansOfOneTypeAreInMemoriesOfTheFirstStage) {
  Random random(44);
  ModelProperties properties;
  properties.measured_steps = testing::ConcaveSteps();
  const std::vector<ShardingType> types = {ShardingType::kTableWise, ShardingType::kColumnWise,
                                           ShardingType::kRowWise};
  const testing::ConcaveCostModel model(3, properties, types);
  int on_ssd = 0;
  for (int i = 0; i < 60; ++i) {
    PlanRequest request = SsdRequest(random, static_cast<int>(random.Between(1, 4)), 4,
                                     2 * random.UniformReal(), random.UniformReal(), 4);
    request.search.effort = SearchEffort::kQuick;
    request.search.refine_steps = 100;
    if (!request.constraints.tables.empty() && random.Below(2) == 0) {
      request.constraints.tables[0].compute_kernels = {ComputeKernel::kKeyValue};
    }
    const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    if (!result.ok()) {
      EXPECT_TRUE(absl::IsFailedPrecondition(result.status())) << i << ' ' << result.status();
      continue;
    }
    EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty()) << i;
    on_ssd += HasRowsOnSsd(result->plan);
  }
  EXPECT_GT(on_ssd, 10);
}

TEST(RefineHostMemoryTest, ShardsOfATableOnSsdAreOnRanksOfTheirOwn) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    Random random(300 + seed);
    PlanRequest request = SsdRequest(random, 9, 4, 0.5, 0, 2);
    request.constraints.tables.resize(1);
    request.constraints.tables[0].tables = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    request.constraints.tables[0].compute_kernels = {ComputeKernel::kKeyValue};
    // One to four blocks of 16 columns.
    request.constraints.sharding_types = {ShardingType::kColumnWise};
    request.constraints.column_rule = ColumnRule::kTorchRec;
    request.constraints.min_column_width = 16;
    const auto result = Search(request);
    ASSERT_TRUE(result.ok()) << seed << ' ' << result.status();
    EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty()) << seed;
    // A table of four blocks has no place on three ranks.
    request.constraints.tables[0].ranks = {0, 1, 2};
    const bool any_wide = std::any_of(request.tables.begin(), request.tables.end(),
                                      [](const Table& table) { return table.embedding_dim == 64; });
    EXPECT_EQ(Search(request).ok(), !any_wide) << seed;
  }
}

// TorchRec's price of rows on SSD does not depend on their cache; device memory that nothing else
// needs is theirs all the same.
TEST(RefineHostMemoryTest, CachesOfRowsOnSsdTakeTheDeviceMemoryThatIsLeft) {
  Random random(17);
  PlanRequest request = SsdRequest(random, 4, 2, 0.6, 0, 2);
  request.constraints.tables.resize(1);
  request.constraints.tables[0].tables = {0, 1, 2, 3};
  request.constraints.tables[0].compute_kernels = {ComputeKernel::kKeyValue};
  const auto result = Search(request);
  ASSERT_TRUE(result.ok()) << result.status();
  for (const TablePlan& table : result->plan.tables) {
    EXPECT_GE(table.cache_load_factor, 0.2) << table.name;
  }
}

TEST(RefineHostMemoryTest, WithoutLeaveSsdsChangeNothing) {
  Random random(19);
  PlanRequest request = Request(random, 12, 4, 0.3, 2);
  const auto before = Search(request);
  request.topology.ssd_bytes = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  const auto after = Search(request);
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ(after->plan, before->plan);
  EXPECT_EQ(after->statistics.plans_evaluated, before->statistics.plans_evaluated);
}

TEST(RefineHostMemoryTest, WhereAllFitsOnDevicesNothingIsOnSsd) {
  Random random(23);
  PlanRequest request = SsdRequest(random, 12, 4, 3, 2, 2);
  const auto result = Search(request);
  ASSERT_TRUE(result.ok());
  for (const TablePlan& table : result->plan.tables) {
    EXPECT_EQ(TierOf(table.compute_kernel), MemoryTier::kDevice) << table.name;
  }
}

TEST(RefineHostMemoryTest, WhereThereIsNoPlanAllMemoriesAreNamed) {
  Random random(29);
  PlanRequest request = SsdRequest(random, 6, 4, 0.2, 0.2, 0.2);
  request.constraints.tables.resize(1);
  request.constraints.tables[0].tables = {0, 1, 2, 3, 4, 5};
  request.constraints.tables[0].compute_kernels = {ComputeKernel::kFused, ComputeKernel::kKeyValue};
  const auto result = Search(request);
  ASSERT_FALSE(result.ok());
  const std::string text(result.status().message());
  EXPECT_THAT(text, HasSubstr("of device memory, "));
  EXPECT_THAT(text, HasSubstr("of host memory and "));
  EXPECT_THAT(text, HasSubstr("of SSD for them"));
  // More SSD would do, so the rule is no part of it.
  EXPECT_THAT(text, ::testing::Not(HasSubstr("compute_kernels")));

  for (std::int64_t& bytes : request.topology.ssd_bytes) bytes *= 10;
  ASSERT_TRUE(Search(request).ok());
  request.constraints.sharding_types = {ShardingType::kDataParallel};
  request.constraints.tables[0].compute_kernels = {ComputeKernel::kKeyValue};
  for (Device& device : request.topology.devices) device.memory_bytes = std::int64_t{1} << 40;
  const auto copies = Search(request);
  ASSERT_FALSE(copies.ok());
  EXPECT_THAT(std::string(copies.status().message()), HasSubstr("only kernel key_value"));
}

TEST(RefineHostMemoryTest, APlanInPlaceStaysOnSsdWithinABudgetOfNothing) {
  Random random(31);
  PlanRequest request = SsdRequest(random, 10, 4, 0.1, 0.2, 2);
  request.constraints.tables.resize(1);
  request.constraints.tables[0].tables.clear();
  for (int t = 0; t < 10; ++t) request.constraints.tables[0].tables.push_back(t);
  request.constraints.tables[0].compute_kernels = {ComputeKernel::kFused, ComputeKernel::kFusedUvm,
                                                   ComputeKernel::kFusedUvmCaching,
                                                   ComputeKernel::kKeyValue};
  const auto before = Search(request);
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_TRUE(HasRowsOnSsd(before->plan));
  Migration& migration = request.migration.emplace();
  migration.previous = before->plan;
  migration.budget_bytes = 0;
  request.constraints.tables.clear();  // what is there may stay
  const auto after = Search(request);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_THAT(CheckPlan(request, after->plan), IsEmpty());
  for (std::size_t t = 0; t < 10; ++t) {
    EXPECT_EQ(TierOf(after->plan.tables[t].compute_kernel),
              TierOf(before->plan.tables[t].compute_kernel));
  }
}

TEST(RefineHostMemoryTest, NoDearerThanOneKernelForAllOrPromotionBySavingAByte) {
  for (int seed = 0; seed < testing::Trials(4); ++seed) {
    Random random(seed);
    const PlanRequest request = Request(random, 24, 4, 0.3, 2);
    WholeTables whole(request);
    const auto result = Search(request);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty());
    double simple_ms = kNone;
    for (std::size_t r = 0; r < whole.rules().residencies().size(); ++r) {
      simple_ms = std::min(simple_ms, whole.Greedy(std::vector<int>(24, static_cast<int>(r))));
    }
    for (std::size_t start = 1; start < whole.rules().residencies().size(); ++start) {
      std::vector<int> residencies(24, static_cast<int>(start));
      std::vector<std::size_t> order;
      for (std::size_t t = 0; t < 24; ++t) order.push_back(t);
      const auto saved = [&](std::size_t t) {
        return (whole.one(t, static_cast<int>(start)).cost_ms - whole.one(t, 0).cost_ms) /
               static_cast<double>(whole.one(t, 0).bytes);
      };
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return saved(a) > saved(b); });
      for (const std::size_t t : order) {
        const int before = residencies[t];
        residencies[t] = 0;
        const double cost_ms = whole.Greedy(residencies);
        if (cost_ms == kNone) residencies[t] = before;
        simple_ms = std::min(simple_ms, cost_ms);
      }
    }
    EXPECT_LE(result->cost.embedding_cost_ms, simple_ms * (1 + 1e-6)) << seed;
  }
}

TEST(RefineHostMemoryTest, RanksComeOutEvenWhereFewTablesAreCutOverManyRanks) {
  for (int seed = 0; seed < testing::Trials(3); ++seed) {
    Random random(seed);
    PlanRequest request = Request(random, 26, 64, 0.3, 1.2);
    double bytes = 0;
    for (Table& table : request.tables) {
      table.num_embeddings = static_cast<std::int64_t>(std::pow(10, 3 + 4 * random.UniformReal()));
      table.embedding_dim = std::int64_t{16} << random.Below(5);
      table.pooling_factor = 1 + 99 * random.UniformReal();
      bytes += 4.0 * static_cast<double>(table.num_embeddings * table.embedding_dim);
    }
    request.topology.host_memory_bytes.assign(8, static_cast<std::int64_t>(1.2 * bytes / 8));
    for (int r = 0; r < 64; ++r) {
      Device& device = request.topology.devices[static_cast<std::size_t>(r)];
      device = {r / 8, static_cast<std::int64_t>(0.3 * bytes / 64)};
      device.max_host_memory_bytes = static_cast<std::int64_t>(1.2 * bytes / 64);
    }
    request.constraints.sharding_types.clear();
    const auto result = Search(request);
    ASSERT_TRUE(result.ok()) << seed << ' ' << result.status();
    EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty());
    double mean_ms = 0;
    for (const RankCost& rank : result->cost.ranks) mean_ms += rank.total_ms() / 64;
    EXPECT_LT(result->cost.embedding_cost_ms, 1.2 * mean_ms) << seed;
  }
}

TEST(RefineHostMemoryTest, ThePlanIsTheSameEachTimeAndMoreThreadsMakeNoneDearer) {
  for (int seed = 0; seed < testing::Trials(3); ++seed) {
    Random random(seed);
    PlanRequest request = Request(random, 20, 8, 0.3, 2);
    const auto once = Search(request);
    const auto again = Search(request);
    ASSERT_TRUE(once.ok() && again.ok());
    EXPECT_EQ(once->plan, again->plan) << seed;
    request.search.max_threads = 3;
    const auto wide = Search(request);
    ASSERT_TRUE(wide.ok());
    EXPECT_LE(wide->cost.embedding_cost_ms, once->cost.embedding_cost_ms) << seed;
  }
}

TEST(RefineHostMemoryTest, SearchesBesideTheFirstKeepRulesOnKernels) {
  for (int seed = 1; seed <= testing::Trials(3); ++seed) {
    Random random(seed);
    PlanRequest request = Request(random, 20, 4, 3, 2);
    TableRule& rule = request.constraints.tables.emplace_back();
    for (int t = 0; t < 20; t += 3) rule.tables.push_back(t);
    rule.compute_kernels = {ComputeKernel::kFusedUvm};
    request.constraints.sharding_types = {ShardingType::kTableWise, ShardingType::kColumnWise,
                                          ShardingType::kRowWise};
    request.search.max_threads = 3;
    request.search.seed = seed;
    const auto result = Search(request);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty());
  }
}

TEST(RefineHostMemoryTest, RulesOnKernelsAndLoadFactorsAreKept) {
  Random random(3);
  PlanRequest request = Request(random, 8, 4, 0.5, 2);
  request.constraints.tables.resize(2);
  request.constraints.tables[0].tables = {0, 1};
  request.constraints.tables[0].compute_kernels = {ComputeKernel::kFusedUvm};
  request.constraints.tables[1].tables = {2};
  request.constraints.tables[1].compute_kernels = {ComputeKernel::kFusedUvmCaching};
  request.constraints.tables[1].cache_load_factor = 0.07;
  const auto result = Search(request);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty());
  EXPECT_EQ(result->plan.tables[2].cache_load_factor, 0.07);
}

TEST(RefineHostMemoryTest, NoBetterThanDeviceMemoryWhereAllFitsThere) {
  Random random(5);
  PlanRequest request = Request(random, 12, 4, 3, 2);
  const auto both = Search(request);
  request.topology.host_memory_bytes.clear();
  const auto device = Search(request);
  ASSERT_TRUE(both.ok() && device.ok());
  EXPECT_NEAR(both->cost.embedding_cost_ms, device->cost.embedding_cost_ms,
              0.01 * device->cost.embedding_cost_ms);
  for (const TablePlan& table : both->plan.tables) {
    EXPECT_FALSE(IsInHostMemory(table.compute_kernel)) << table.name;
  }
}

// Ranks' limits on host memory, SSDs that no rule allows and the reserve.
TEST(RefineHostMemoryTest, WhereThereIsNoPlanItSaysWhatCannotBeUsed) {
  Random random(5);
  PlanRequest request = Request(random, 4, 2, 0.4, 10);
  for (Device& device : request.topology.devices) device.max_host_memory_bytes = 1 << 10;
  request.topology.ssd_bytes = {1 << 30};
  request.memory.reserve_bytes = 1;
  const auto result = Search(request);
  EXPECT_THAT(std::string(result.status().message()),
              ::testing::AllOf(HasSubstr("no plan can exist"), HasSubstr("2.00 KiB of host memory"),
                               HasSubstr("beside a reserve of 2 B"),
                               HasSubstr("SSDs are for tables whose rule lists key_value")));
}

TEST(RefineHostMemoryTest, WhereThereIsNoPlanBothMemoriesAreNamed) {
  Random random(7);
  const PlanRequest request = Request(random, 6, 4, 0.3, 0.4);
  const auto result = Search(request);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("of host memory"));
}

TEST(RefineHostMemoryTest, OtherStrategiesSayThatTheyKeepToDeviceMemory) {
  Random random(9);
  PlanRequest request = Request(random, 6, 4, 0.3, 2);
  request.constraints = {};
  request.search.strategy = "size_greedy";
  const auto result = Search(request);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("'size_greedy' keeps to device memory, 'refine' puts tables into host"));
  EXPECT_EQ(ReasonOf(result.status()), FailureReason::kNoPlanFound);
}

TEST(RefineHostMemoryTest, APlanInPlaceKeepsItsLoadFactors) {
  Random random(11);
  PlanRequest request = Request(random, 10, 4, 0.3, 2);
  const auto before = Search(request);
  ASSERT_TRUE(before.ok());
  Migration& migration = request.migration.emplace();
  migration.previous = before->plan;
  for (TablePlan& table : migration.previous.tables) {
    if (table.compute_kernel == ComputeKernel::kFusedUvmCaching) table.cache_load_factor *= 0.97;
  }
  migration.budget_bytes = 0;
  const auto after = Search(request);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_THAT(CheckPlan(request, after->plan), IsEmpty());
}

}  // namespace
}  // namespace neuroshard
