#include "server/search/feasibility/bin_completion.h"

#include <gmock/gmock.h>

#include <string>

#include "common/base/random.h"
#include "server/evaluate/check_plan.h"

namespace neuroshard {
namespace {

using ::testing::IsEmpty;

// Tables of 4 to 120 bytes, on ranks that are even or not.
PlanRequest RandomRequest(Random& random, int tables, int ranks) {
  PlanRequest request;
  request.memory.rule = MemoryRule::kWeightsOnly;
  for (int t = 0; t < tables; ++t) {
    Table& table = request.tables.emplace_back();
    table.name = std::to_string(t);
    table.num_embeddings = random.Between(1, 30);
    table.embedding_dim = 1;
  }
  Constraints& constraints = request.constraints;
  constraints.sharding_types = {ShardingType::kTableWise};
  if (random.Below(2) == 0) {
    constraints.max_tables_per_rank = static_cast<int>(random.Between(2, 4));
  }
  if (random.Below(2) == 0) constraints.separate.push_back({{0, 1, 2}, GroupLevel::kRank});
  const bool alike = random.Below(2) == 0;
  const bool even = random.Below(2) == 0;
  const std::int64_t room = random.Between(20, 60);
  for (int r = 0; r < ranks; ++r) {
    request.topology.devices.push_back({0, 4 * (even ? room : random.Between(1, 60))});
  }
  for (int t = 0; t < tables && !alike; ++t) {
    TableRule rule;
    rule.tables = {t};
    for (int r = 0; r < ranks; ++r) {
      if (random.Below(6) != 0) rule.ranks.push_back(r);
    }
    if (!rule.ranks.empty()) constraints.tables.push_back(std::move(rule));
  }
  // Says nothing, but that ranks are not interchangeable for all that is known.
  if (random.Below(2) == 0) constraints.separate.push_back({{0}, GroupLevel::kHost});
  return request;
}

bool CanBePacked(PlacedBundles& placed, int next) {
  if (next == placed.size()) return true;
  for (const int rank : placed.ranks_of(next)) {
    if (!placed.Put(next, placed.OnRank(next, rank))) continue;
    const bool can_be = CanBePacked(placed, next + 1);
    placed.Take(next);
    if (can_be) return true;
  }
  return false;
}

TEST(BinCompletionTest, AgreesWithTryingAll) {
  Random random(81);
  int packed = 0;
  int none = 0;
  for (int i = 0; i < 600; ++i) {
    const int ranks = static_cast<int>(random.Between(1, 4));
    const PlanRequest request =
        RandomRequest(random, static_cast<int>(random.Between(3, 9)), ranks);
    const CompiledRules rules(request, {});
    PlacedBundles placed(request, rules);
    const bool can_be = CanBePacked(placed, 0);
    const auto answer = CompleteBins(request, rules, placed, NeverStop(), 1'000'000'000);
    ASSERT_EQ(answer, can_be ? BinAnswer::kPacked : BinAnswer::kNone) << i;
    ++(can_be ? packed : none);
    if (can_be) {
      ASSERT_THAT(CheckPlan(request, placed.ledger().MakePlan()), IsEmpty()) << i;
    } else {
      ASSERT_EQ(placed.Waiting().size(), request.tables.size()) << i;
    }
  }
  EXPECT_GT(packed, 100);
  EXPECT_GT(none, 100);
}

}  // namespace
}  // namespace neuroshard
