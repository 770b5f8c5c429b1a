#include "server/evaluate/stash.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "common/domain/memory_use.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/rules/row_cuts.h"
#include "tests/support/random_plan.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::RandomPlanRequest;
using ::neuroshard::testing::RandomTablePlan;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<MemoryUse> UseOf(const PlanRequest& request, const Plan& plan) {
  std::vector<MemoryUse> ranks(request.topology.devices.size());
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    for (const Shard& shard : plan.tables[t].shards) {
      ranks[static_cast<std::size_t>(shard.rank)] +=
          ShardMemory(request, request.tables[t], LayoutOf(plan.tables[t]), shard.rows, shard.cols);
    }
  }
  return ranks;
}

// The most that a rank stashes; none: some rank keeps too much.
std::optional<std::int64_t> MostStashed(const PlanRequest& request, const Plan& plan) {
  const std::vector<MemoryUse> ranks = UseOf(request, plan);
  std::int64_t most = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::int64_t capacity = request.topology.devices[r].memory_bytes;
    const std::int64_t kept = ranks[r].total_bytes() - ranks[r].stashed_bytes;
    if (kept + ReserveBytes(request.memory, capacity) + request.memory.dense_bytes > capacity) {
      return std::nullopt;
    }
    most = std::max(most, ranks[r].stashed_bytes);
  }
  return most;
}

// Over all sets that have every table that asks for it.
std::optional<std::int64_t> LeastOfAllSets(const PlanRequest& request, const Plan& plan) {
  std::optional<std::int64_t> least;
  for (std::uint32_t set = 0; set < 1u << request.tables.size(); ++set) {
    PlanRequest stashed = request;
    for (std::size_t t = 0; t < stashed.tables.size(); ++t) {
      stashed.tables[t].stash_weights = request.tables[t].stash_weights || (set >> t & 1u) != 0;
    }
    const auto most = MostStashed(stashed, plan);
    if (most && (!least || *most < *least)) least = most;
  }
  return least;
}

// Devices that hold the plan, with a little more or less room beside dense layers.
PlanRequest RequestFor(Random& random, Plan& plan) {
  PlanRequest request = RandomPlanRequest(random, {.max_tables = 9, .dims = {4, 8, 16, 64}});
  request.memory.reserve_fraction = 0;
  plan = {};
  plan.world_size = request.topology.num_ranks();
  plan.local_world_size = request.topology.ranks_per_host();
  for (Table& table : request.tables) {
    table.stash_weights = random.Below(5) == 0;
    plan.tables.push_back(RandomTablePlan(random, table, request.topology.hosts()));
  }
  const std::vector<MemoryUse> use = UseOf(request, plan);
  std::int64_t most = 0;
  for (std::size_t r = 0; r < use.size(); ++r) {
    const std::int64_t bytes = use[r].total_bytes();
    request.topology.devices[r].memory_bytes =
        bytes + random.Between(1, bytes / 4 + 1) + request.memory.reserve_bytes;
    most = std::max(most, bytes);
  }
  request.memory.dense_bytes = random.Between(1, most / 2 + 1);
  return request;
}

TEST(StashTest, TinyPlansStashTheLeastOfAllSets) {
  Random random(7);
  int solved = 0, least_found = 0, impossible = 0;
  for (int i = 0; i < testing::Trials(600); ++i) {
    Plan plan;
    const PlanRequest request = RequestFor(random, plan);
    ASSERT_THAT(CheckPlan(request, plan), IsEmpty()) << i;
    const std::optional<std::int64_t> least = LeastOfAllSets(request, plan);
    const auto stashed = ChooseStash(request, plan);
    ASSERT_EQ(stashed.ok(), least.has_value()) << i << stashed.status();
    if (!least) {
      ++impossible;
      EXPECT_THAT(stashed.status().message(), HasSubstr("bytes short")) << i;
      continue;
    }
    const std::optional<std::int64_t> most = MostStashed(stashed->request, plan);
    ASSERT_TRUE(most.has_value()) << i;
    EXPECT_EQ(stashed->max_bytes, *most) << i;
    EXPECT_GE(*most, *least) << i;
    if (*least > 0) ++solved;
    if (*least > 0 && *most == *least) ++least_found;
    // None can be left out, and what asks for it stays.
    for (std::size_t t = 0; t < request.tables.size(); ++t) {
      EXPECT_GE(stashed->request.tables[t].stash_weights, request.tables[t].stash_weights) << i;
      if (request.tables[t].stash_weights || !stashed->request.tables[t].stash_weights) continue;
      PlanRequest fewer = stashed->request;
      fewer.tables[t].stash_weights = false;
      EXPECT_EQ(MostStashed(fewer, plan), std::nullopt) << i << " table " << t;
    }
  }
  EXPECT_GE(solved, testing::FewestCases(151));
  EXPECT_GE(impossible, testing::FewestCases(31));
  EXPECT_GT(least_found, 0.95 * solved) << "of " << solved;
}

TEST(StashTest, WithoutDenseBytesOnlyWhatAsksForItIsStashed) {
  Random random(8);
  Plan plan;
  PlanRequest request = RequestFor(random, plan);
  request.memory.dense_bytes = 0;
  EXPECT_EQ(ChooseStash(request, plan)->request, request);

  // A rank that holds nothing may reserve more than it has.
  plan.tables.clear();
  request.tables.clear();
  request.memory.reserve_bytes = request.topology.devices[0].memory_bytes + 1;
  ASSERT_TRUE(CheckPlan(request, plan).empty());
  EXPECT_TRUE(ChooseStash(request, plan).ok());
}

}  // namespace
}  // namespace neuroshard
