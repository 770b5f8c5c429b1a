#include "server/search/feasibility/migration_repair.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>

#include "common/domain/memory_use.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/migration_report.h"
#include "server/search/placement/placement.h"
#include "server/search/run_search.h"
#include "server/search/testing/all_plans.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/random_constraints.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::AddRandomConstraints;
using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::RandomPlanRequest;
using ::neuroshard::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::optional<Plan> Repaired(const PlanRequest& request, TypeSet types) {
  const CompiledRules rules(request, types);
  return RepairPrevious(request, rules, NeverStop());
}

// What ranks take of each table in a plan: [rank, table].
std::vector<std::vector<std::int64_t>> BytesIn(const PlanRequest& request, const Plan& plan) {
  std::vector<std::vector<std::int64_t>> bytes(request.topology.devices.size(),
                                               std::vector<std::int64_t>(request.tables.size(), 0));
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    for (const Shard& shard : plan.tables[t].shards) {
      bytes[static_cast<std::size_t>(shard.rank)][t] +=
          ShardMemory(request, request.tables[t], shard.rows, shard.cols).total_bytes();
    }
  }
  return bytes;
}

// 60 tables on two hosts of eight devices, whole or cut in two, with about a fifth to spare.
PlanRequest PlacedTables(Random& random) {
  PlanRequest request;
  request.memory.rule = MemoryRule::kWeightsOnly;
  request.constraints.sharding_types = {ShardingType::kTableWise, ShardingType::kColumnWise};
  for (int r = 0; r < 16; ++r) request.topology.devices.push_back({r / 8, 0});
  Migration& migration = request.migration.emplace();
  Plan& plan = migration.previous;
  plan.world_size = 16;
  plan.local_world_size = 8;
  for (int t = 0; t < 60; ++t) {
    Table& table = request.tables.emplace_back();
    table.name = "t" + std::to_string(t);
    table.num_embeddings = static_cast<std::int64_t>(std::exp(9 + 7 * random.UniformReal()));
    table.embedding_dim = 16 << random.Below(4);
    TablePlan& of = plan.tables.emplace_back();
    of.name = table.name;
    const std::int64_t rows = table.num_embeddings;
    const std::int64_t half = table.embedding_dim / 2;
    const auto rank = [&] { return static_cast<int>(random.Below(16)); };
    if (random.Below(4) > 0) {
      of.shards = {{0, rows, 0, table.embedding_dim, rank()}};
    } else {
      of.sharding_type = ShardingType::kColumnWise;
      of.shards = {{0, rows, 0, half, rank()}, {0, rows, half, half, rank()}};
    }
  }
  const auto bytes = BytesIn(request, plan);
  for (std::size_t r = 0; r < 16; ++r) {
    const std::int64_t used = std::accumulate(bytes[r].begin(), bytes[r].end(), std::int64_t{0});
    const double spare = 1 + 0.4 * random.UniformReal();
    request.topology.devices[r].memory_bytes =
        static_cast<std::int64_t>(spare * static_cast<double>(used)) + 1000;
  }
  return request;
}

// A device shrinks and moves are made that mend it; the budget is what those take.
TEST(RepairPreviousTest, OneMoveOrTwoAreFoundWhereTheyAreEnough) {
  Random random(71);
  int shrinks = 0;
  int found = 0;
  double moved_bytes = 0;
  double budget_bytes = 0;
  while (shrinks < 1000) {
    PlanRequest request = PlacedTables(random);
    Migration& migration = *request.migration;
    const std::size_t rank = random.Below(16);
    const auto bytes = BytesIn(request, migration.previous);
    const PreviousPlacement previous(request);
    // One or two shards leave the rank for others, and sometimes the second one makes room there.
    Plan after = migration.previous;
    const auto move_from = [&](std::size_t from) {
      std::vector<Shard*> there;
      for (TablePlan& table : after.tables) {
        for (Shard& shard : table.shards) {
          if (shard.rank == static_cast<int>(from)) there.push_back(&shard);
        }
      }
      if (there.empty()) return from;
      Shard* const shard = there[random.Below(there.size())];
      shard->rank = static_cast<int>((from + 1 + random.Below(15)) % 16);
      return static_cast<std::size_t>(shard->rank);
    };
    const std::size_t to = move_from(rank);
    if (to == rank) continue;
    const std::uint64_t kind = random.Below(3);
    if (kind == 1) move_from(rank);
    if (kind == 2) move_from(to);
    const auto use = BytesIn(request, after);
    bool room = true;
    for (std::size_t r = 0; r < 16; ++r) {
      const std::int64_t used = std::accumulate(use[r].begin(), use[r].end(), std::int64_t{0});
      std::int64_t& has = request.topology.devices[r].memory_bytes;
      if (r == rank) {
        has = used + 1;  // all the room that a legal plan takes
      } else if (used > has && random.Below(2) == 0) {
        room = false;
      } else {
        has = std::max(has, used);
      }
    }
    const std::int64_t held =
        std::accumulate(bytes[rank].begin(), bytes[rank].end(), std::int64_t{0});
    if (!room || held <= request.topology.devices[rank].memory_bytes) continue;
    migration.budget_bytes = ReportMigration(request, after).moved_bytes;
    ASSERT_THAT(CheckPlan(request, after), IsEmpty());
    ++shrinks;
    budget_bytes += static_cast<double>(*migration.budget_bytes);
    const auto plan = Repaired(request, {});
    if (!plan.has_value()) {
      ADD_FAILURE() << "shrink " << shrinks << " kind " << kind;
      continue;
    }
    ++found;
    ASSERT_THAT(CheckPlan(request, *plan), IsEmpty());
    moved_bytes += static_cast<double>(ReportMigration(request, *plan).moved_bytes);
  }
  EXPECT_EQ(found, shrinks);
  EXPECT_LT(moved_bytes, budget_bytes);
}

// The largest table of a device has to leave it, and no budget to spare: the whole search.
TEST(RepairPreviousTest, RefineMovesTheOneTableThatHasTo) {
  Random random(73);
  const ConcaveCostModel model;
  for (int i = 0; i < testing::Trials(15); ++i) {
    PlanRequest request = PlacedTables(random);
    const auto bytes = BytesIn(request, request.migration->previous);
    const std::size_t rank = random.Below(16);
    const std::int64_t largest = *std::max_element(bytes[rank].begin(), bytes[rank].end());
    const std::int64_t held =
        std::accumulate(bytes[rank].begin(), bytes[rank].end(), std::int64_t{0});
    if (largest == 0) continue;
    request.topology.devices[rank].memory_bytes = held - largest;
    request.topology.devices[(rank + 1) % 16].memory_bytes += largest;
    request.migration->budget_bytes = largest + largest / 50;
    request.search.strategy = "refine";
    request.search.refine_steps = 10;
    NS_ASSERT_OK_AND_ASSIGN(const SearchResult result,
                            RunSearch(request, BoundTo(request, model), NeverStop(), nullptr));
    ASSERT_THAT(CheckPlan(request, result.plan), IsEmpty());
    // With less there is no plan, and the answer says how much it takes.
    request.migration->budget_bytes = 10;
    const auto none = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    EXPECT_THAT(
        none, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("migration.budget_bytes")));
  }
}

// Whether a legal plan differs from the one in place in the layouts of two tables at most.
bool TwoMovesAreEnough(const PlanRequest& request, TypeSet types) {
  const CompiledRules rules(request, types);
  std::vector<std::vector<TablePlan>> all;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    all.push_back(AllTablePlans(request, static_cast<int>(t)));
    std::erase_if(all.back(), [&](const TablePlan& plan) {
      return !rules.of(static_cast<int>(t)).types.contains(plan.sharding_type);
    });
  }
  Plan plan = request.migration->previous;
  for (std::size_t a = 0; a < all.size(); ++a) {
    const TablePlan of_a = plan.tables[a];
    for (const TablePlan& new_a : all[a]) {
      plan.tables[a] = new_a;
      if (CheckPlan(request, plan).empty()) return true;
      for (std::size_t b = 0; b < a; ++b) {
        const TablePlan of_b = plan.tables[b];
        for (const TablePlan& new_b : all[b]) {
          plan.tables[b] = new_b;
          if (CheckPlan(request, plan).empty()) return true;
        }
        plan.tables[b] = of_b;
      }
    }
    plan.tables[a] = of_a;
  }
  return false;
}

TEST(RepairPreviousTest, FindsAPlanWheneverTwoTablesAreEnough) {
  Random random(72);
  int enough = 0;
  int found = 0;
  for (int i = 0; i < testing::Trials(400); ++i) {
    const TypeSet types = i % 2 == 0 ? TypeSet{ShardingType::kTableWise, ShardingType::kColumnWise}
                                     : TypeSet{ShardingType::kTableWise, ShardingType::kColumnWise,
                                               ShardingType::kRowWise, ShardingType::kTableRowWise,
                                               ShardingType::kRowWiseSubset};
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 5,
                                                     .max_ranks = 3,
                                                     .dims = {4, 6, 8},
                                                     .min_slack = 1.1,
                                                     .max_slack = 1.8,
                                                     .ranks_per_host = {1, 2},
                                                     .torchrec_memory = true});
    request.search.strategy = "random";
    const auto before =
        RunSearch(request, BoundTo(request, ConcaveCostModel()), NeverStop(), nullptr);
    if (!before.ok()) continue;
    if (i % 3 == 0) AddRandomConstraints(random, request, 8);
    request.migration.emplace().previous = before->plan;
    std::int64_t& has =
        request.topology.devices[random.Below(request.topology.devices.size())].memory_bytes;
    has = static_cast<std::int64_t>(static_cast<double>(has) * random.UniformReal());
    double bytes = 0;
    for (const Table& table : request.tables) {
      bytes += static_cast<double>(table.num_embeddings * table.embedding_dim) *
               ElementBytes(table.weight_dtype);
    }
    request.migration->budget_bytes =
        static_cast<std::int64_t>(bytes * random.UniformReal() * random.UniformReal());
    const auto plan = Repaired(request, types);
    if (plan.has_value()) {
      ASSERT_THAT(CheckPlan(request, *plan), IsEmpty());
      ++found;
    }
    if (!TwoMovesAreEnough(request, types)) continue;
    ++enough;
    EXPECT_TRUE(plan.has_value()) << "request " << i;
  }
  EXPECT_GE(enough, testing::FewestCases(51));
  EXPECT_GE(found, enough);
}

TEST(RepairPreviousTest, CoLocatedTablesTakeEveryRankWhereThereIsOne) {
  PlanRequest request;
  request.topology.devices = {{0, 1 << 30}};
  Plan& previous = request.migration.emplace().previous;
  previous.world_size = previous.local_world_size = 1;
  for (const char* name : {"a", "b"}) {
    Table& table = request.tables.emplace_back();
    table.name = name;
    table.num_embeddings = 10;
    table.embedding_dim = 8;
    TablePlan& of = previous.tables.emplace_back();
    of.name = name;
    of.shards = {{0, 10, 0, 8, 0}};
  }
  request.constraints.colocate = {{{0, 1}, GroupLevel::kRank}};
  request.constraints.sharding_types = {ShardingType::kRowWise};
  const auto plan = Repaired(request, TypeSet::All());
  ASSERT_TRUE(plan.has_value());
  EXPECT_THAT(CheckPlan(request, *plan), IsEmpty());
}

TEST(CheapestCoversTest, AreTheCheapestThatNeedAllTheyHave) {
  const std::vector<std::int64_t> bytes = {5, 3, 9, 3};
  EXPECT_THAT(CheapestCovers(bytes, bytes, 6, 3),
              ElementsAre(std::vector{1, 3}, std::vector{0, 1}, std::vector{0, 3}));
  EXPECT_THAT(CheapestCovers(bytes, {5, 3, 1, 3}, 6, 1), ElementsAre(std::vector{2}));
  EXPECT_THAT(CheapestCovers(bytes, bytes, 21, 3), IsEmpty());
}

}  // namespace
}  // namespace neuroshard
