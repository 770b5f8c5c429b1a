#include "server/search/feasibility/bin_completion.h"

#include <gtest/gtest.h>

#include <climits>
#include <numeric>

#include "common/base/random.h"

namespace neuroshard {
namespace {

PackingTask RandomTask(Random& random, int items, int ranks) {
  PackingTask task;
  for (int i = 0; i < items; ++i) task.items.push_back({random.Between(1, 30), 1, 1});
  task.max_tables = random.Below(2) == 0 ? INT_MAX : static_cast<int>(random.Between(2, 4));
  task.max_shards = INT_MAX;
  task.alike = random.Below(2) == 0;
  if (random.Below(2) == 0) task.apart.push_back({0, 1, 2});
  const bool even = random.Below(2) == 0;
  const std::int64_t room = random.Between(20, 60);
  for (int r = 0; r < ranks; ++r) {
    task.room.push_back(even ? room : random.Between(0, 60));
    std::vector<bool>& allows = task.allows.emplace_back();
    for (int i = 0; i < items; ++i) allows.push_back(task.alike || random.Below(6) != 0);
  }
  return task;
}

// Whether the rank may have these items.
bool MayHave(const PackingTask& task, int rank, const std::vector<int>& items) {
  std::int64_t bytes = 0;
  int apart = 0;
  for (const int item : items) {
    const std::size_t i = static_cast<std::size_t>(item);
    if (!task.allows[static_cast<std::size_t>(rank)][i]) return false;
    bytes += task.items[i].bytes;
    apart += !task.apart.empty() && item < 3 ? 1 : 0;
  }
  return bytes <= task.room[static_cast<std::size_t>(rank)] && apart <= 1 &&
         static_cast<int>(items.size()) <= task.max_tables;
}

bool CanBePacked(const PackingTask& task, std::vector<std::vector<int>>& on_rank, int next) {
  if (next == static_cast<int>(task.items.size())) return true;
  for (std::size_t r = 0; r < on_rank.size(); ++r) {
    on_rank[r].push_back(next);
    if (MayHave(task, static_cast<int>(r), on_rank[r]) && CanBePacked(task, on_rank, next + 1)) {
      return true;
    }
    on_rank[r].pop_back();
  }
  return false;
}

TEST(BinCompletionTest, AgreesWithTryingAll) {
  Random random(81);
  int packed = 0;
  int none = 0;
  for (int i = 0; i < 600; ++i) {
    const int ranks = static_cast<int>(random.Between(1, 4));
    const PackingTask task = RandomTask(random, static_cast<int>(random.Between(3, 9)), ranks);
    std::vector<std::vector<int>> on_rank(task.room.size());
    const BinFiller filler = {[&](int rank, const std::vector<int>& items) {
                                EXPECT_TRUE(on_rank[static_cast<std::size_t>(rank)].empty());
                                EXPECT_TRUE(MayHave(task, rank, items));
                                on_rank[static_cast<std::size_t>(rank)] = items;
                                return true;
                              },
                              [&](int rank, const std::vector<int>& items) {
                                EXPECT_EQ(on_rank[static_cast<std::size_t>(rank)], items);
                                on_rank[static_cast<std::size_t>(rank)].clear();
                              }};
    const NeverStop stop;
    const auto answer = CompleteBins(task, filler, stop, 1'000'000'000);
    std::vector<std::vector<int>> empty(task.room.size());
    const bool can_be = CanBePacked(task, empty, 0);
    ASSERT_EQ(answer, can_be ? BinAnswer::kPacked : BinAnswer::kNone) << i;
    ++(can_be ? packed : none);
    std::size_t placed = 0;
    for (const auto& items : on_rank) placed += items.size();
    ASSERT_EQ(placed, can_be ? task.items.size() : 0U);
  }
  EXPECT_GT(packed, 100);
  EXPECT_GT(none, 100);
}

}  // namespace
}  // namespace neuroshard
