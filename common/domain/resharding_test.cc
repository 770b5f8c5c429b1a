#include "common/domain/resharding.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/domain/held_shards.h"
#include "common/domain/memory_use.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::int64_t BytesOf(const PlanRequest& request, const Plan& plan, const TableShard& held) {
  const std::size_t table = static_cast<std::size_t>(held.table);
  const MemoryUse use = ShardMemory(request, request.tables[table], LayoutOf(plan.tables[table]),
                                    held.shard.rows, held.shard.cols);
  return use.weights_bytes + use.optimizer_bytes;
}

// Plays a resharding on ranks of the plan in place, cell by cell; tables have the same positions in
// the request and in both plans.
class Simulation {
 public:
  Simulation(const PlanRequest& request, const Plan& plan)
      : request_(request), plan_(plan), held_(request.topology.devices.size()) {
    const Plan& before = request.migration->previous;
    for (std::size_t t = 0; t < before.tables.size(); ++t) {
      for (const Shard& shard : before.tables[t].shards) {
        Hold({static_cast<int>(t), shard}, before);
      }
    }
  }

  void Run(const Resharding& resharding) {
    for (const TableShard& shard : resharding.freed_first) Drop(shard);
    for (const ReshardingStep& step : resharding.steps) Run(step);
    ASSERT_EQ(most_buffered_ > 0, resharding.order != OrderKind::kFits);
    ASSERT_EQ(resharding.buffer_bytes > 0, resharding.order != OrderKind::kFits);
    ASSERT_EQ(resharding.cycle.empty(), resharding.order == OrderKind::kFits);
    for (std::size_t rank = 0; rank < held_.size(); ++rank) {
      std::multiset<Key> now;
      for (const auto& [key, bytes] : held_[rank]) now.insert(key);
      std::multiset<Key> wanted;
      for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
        for (const Shard& shard : plan_.tables[t].shards) {
          if (shard.rank == static_cast<int>(rank)) {
            wanted.insert(KeyOf({static_cast<int>(t), shard}));
          }
        }
      }
      ASSERT_EQ(now, wanted) << "rank " << rank;
      ASSERT_LE(peak_[rank], resharding.peak_bytes[rank]) << "rank " << rank;
    }
  }

 private:
  using Key = std::tuple<int, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  static Key KeyOf(const TableShard& held) {
    return {held.table, held.shard.row_offset, held.shard.rows, held.shard.col_offset,
            held.shard.cols};
  }
  std::map<Key, std::int64_t>& On(int rank) { return held_[static_cast<std::size_t>(rank)]; }

  void Hold(const TableShard& shard, const Plan& plan) {
    ASSERT_TRUE(On(shard.shard.rank).emplace(KeyOf(shard), BytesOf(request_, plan, shard)).second);
  }
  void Drop(const TableShard& shard) { ASSERT_EQ(On(shard.shard.rank).erase(KeyOf(shard)), 1u); }

  std::int64_t Used(int rank) {
    std::int64_t bytes = 0;
    for (const auto& [key, held] : On(rank)) bytes += held;
    return bytes;
  }

  static bool Covers(const Key& holder, int table, const Shard& part) {
    const auto& [of, row, rows, col, cols] = holder;
    return of == table && row <= part.row_offset && part.row_offset + part.rows <= row + rows &&
           col <= part.col_offset && part.col_offset + part.cols <= col + cols;
  }

  void Run(const ReshardingStep& step) {
    std::set<int> receivers;
    std::map<int, std::int64_t> bytes;
    for (std::size_t r = 0; r < held_.size(); ++r)
      bytes[static_cast<int>(r)] = Used(static_cast<int>(r));
    for (const MadeShard& made : step.made) {
      const Shard& shard = made.made.shard;
      receivers.insert(shard.rank);
      bytes[shard.rank] += BytesOf(request_, plan_, made.made);
      double cells = 0;
      for (std::size_t i = 0; i < made.parts.size(); ++i) {
        const MovedPart& part = made.parts[i];
        cells += Cells(part.part);
        const auto common = Overlap(part.part, shard);
        ASSERT_TRUE(common && *common == part.part);
        for (std::size_t j = 0; j < i; ++j) ASSERT_FALSE(Overlap(part.part, made.parts[j].part));
        const auto& source = part.link == PartLink::kBuffer ? buffer_ : On(part.from_rank);
        ASSERT_TRUE(std::any_of(source.begin(), source.end(), [&](const auto& held) {
          return Covers(held.first, made.made.table, part.part);
        }));
        ASSERT_EQ(part.link == PartLink::kSameRank,
                  part.link != PartLink::kBuffer && part.from_rank == shard.rank);
      }
      ASSERT_EQ(cells, Cells(shard));
    }
    for (const auto& [rank, used] : bytes) {
      peak_[static_cast<std::size_t>(rank)] = std::max(peak_[static_cast<std::size_t>(rank)], used);
      if (!receivers.contains(rank)) continue;
      const Device& device = request_.topology.devices[static_cast<std::size_t>(rank)];
      ASSERT_LE(used, device.memory_bytes - ReserveBytes(request_.memory, device.memory_bytes));
    }
    std::map<Key, std::int64_t> copied;
    for (const TableShard& shard : step.to_buffer) {
      const auto place = On(shard.shard.rank).find(KeyOf(shard));
      ASSERT_NE(place, On(shard.shard.rank).end());
      buffer_.insert(*place);
      ++most_buffered_;
    }
    for (const TableShard& shard : step.freed) Drop(shard);
    for (const MadeShard& made : step.made) Hold(made.made, plan_);
  }

  const PlanRequest& request_;
  const Plan& plan_;
  std::vector<std::map<Key, std::int64_t>> held_;
  std::map<Key, std::int64_t> buffer_;  // never emptied: what is there may be read
  int most_buffered_ = 0;
  std::map<std::size_t, std::int64_t> peak_;
};

Table TableOf(const std::string& name, std::int64_t rows, std::int64_t cols) {
  Table table;
  table.name = name;
  table.num_embeddings = rows;
  table.embedding_dim = cols;
  return table;
}

// Rectangles on ranks at random, or a replica on each.
TablePlan RandomLayout(Random& random, const Table& table, int ranks) {
  TablePlan plan;
  plan.name = table.name;
  if (random.Below(6) == 0) {
    plan.sharding_type = ShardingType::kDataParallel;
    for (int r = 0; r < ranks; ++r) {
      plan.shards.push_back({0, table.num_embeddings, 0, table.embedding_dim, r});
    }
    return plan;
  }
  const auto rank = [&] {
    return static_cast<int>(random.Below(static_cast<std::uint64_t>(ranks)));
  };
  const std::vector<Block> columns =
      WidthBlocks(table.embedding_dim, random.Below(2) == 0 ? table.embedding_dim : 4);
  for (const Block& column : columns) {
    const std::vector<Block> rows = CeilBlocks(
        table.num_embeddings, random.Below(2) == 0 ? 1 : static_cast<int>(random.Between(1, 3)));
    int at = rank();
    for (const Block& row : rows) {
      if (row.size == 0) continue;
      // Blocks of rows on different ranks: shards of a rank share no columns.
      plan.shards.push_back({row.offset, row.size, column.offset, column.size, at % ranks});
      ++at;
      if (rows.size() > static_cast<std::size_t>(ranks)) return RandomLayout(random, table, ranks);
    }
  }
  return plan;
}

struct RandomCase {
  PlanRequest request;
  Plan plan;
};

RandomCase MakeCase(Random& random, int max_tables, double max_slack) {
  RandomCase made;
  const int ranks = static_cast<int>(random.Between(2, 5));
  made.request.optimizer = random.Below(2) == 0 ? Optimizer::kSgd : Optimizer::kRowwiseAdagrad;
  Plan& before = made.request.migration.emplace().previous;
  for (int t = 0; t < static_cast<int>(random.Between(1, max_tables)); ++t) {
    const Table table =
        TableOf("t" + std::to_string(t), random.Between(3, 9), 4 * random.Between(1, 4));
    made.request.tables.push_back(table);
    before.tables.push_back(RandomLayout(random, table, ranks));
    made.plan.tables.push_back(RandomLayout(random, table, ranks));
  }
  std::vector<std::int64_t> needed(static_cast<std::size_t>(ranks));
  for (const Plan* plan : {&before, &made.plan}) {
    std::vector<std::int64_t> bytes(needed.size());
    for (std::size_t t = 0; t < plan->tables.size(); ++t) {
      for (const Shard& shard : plan->tables[t].shards) {
        bytes[static_cast<std::size_t>(shard.rank)] +=
            BytesOf(made.request, *plan, {static_cast<int>(t), shard});
      }
    }
    // Sometimes only the new plan fits.
    if (plan == &before && random.Below(5) == 0) continue;
    for (std::size_t r = 0; r < needed.size(); ++r) needed[r] = std::max(needed[r], bytes[r]);
  }
  made.request.memory.reserve_bytes = 7;
  for (int r = 0; r < ranks; ++r) {
    const double slack = 1 + max_slack * random.UniformReal();
    const double bytes = static_cast<double>(needed[static_cast<std::size_t>(r)]) * slack;
    made.request.topology.devices.push_back(
        {.host = r / 2, .memory_bytes = 7 + static_cast<std::int64_t>(bytes)});
  }
  return made;
}

TEST(ReshardTest, EveryRankEndsWithThePlanAndIsNeverOverItsMemory) {
  Random random(11);
  std::map<OrderKind, int> kinds;
  for (int round = 0; round < testing::Trials(2000); ++round) {
    const RandomCase made = MakeCase(random, 8, round % 2 == 0 ? 0.3 : 1.5);
    const auto resharding = Reshard(made.request, made.plan);
    ASSERT_TRUE(resharding.ok()) << resharding.status();
    Simulation simulation(made.request, made.plan);
    ASSERT_NO_FATAL_FAILURE(simulation.Run(*resharding)) << "round " << round;
    ++kinds[resharding->order];
  }
  EXPECT_GT(kinds[OrderKind::kFits], testing::Trials(500));
  EXPECT_GT(kinds[OrderKind::kNeedsBuffer], testing::Trials(100));
}

// Whether some order of whole shards needs no buffer, by trying all.
bool SomeOrderFits(const RandomCase& made, const Resharding& resharding) {
  std::vector<MadeShard> jobs;
  for (const ReshardingStep& step : resharding.steps) {
    jobs.insert(jobs.end(), step.made.begin(), step.made.end());
  }
  const Plan& before = made.request.migration->previous;
  struct Old {
    TableShard held;
    std::vector<std::size_t> users;
  };
  std::vector<Old> olds;
  for (std::size_t t = 0; t < before.tables.size(); ++t) {
    for (const Shard& shard : before.tables[t].shards) {
      olds.push_back({{static_cast<int>(t), shard}, {}});
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        if (jobs[j].made.table != static_cast<int>(t)) continue;
        for (const MovedPart& part : jobs[j].parts) {
          if (part.from_rank == shard.rank && Overlap(part.part, shard))
            olds.back().users.push_back(j);
        }
      }
    }
  }
  const auto stays = [&](const Old& old) {
    const auto& shards = made.plan.tables[static_cast<std::size_t>(old.held.table)].shards;
    return std::find(shards.begin(), shards.end(), old.held.shard) != shards.end() &&
           BytesOf(made.request, before, old.held) == BytesOf(made.request, made.plan, old.held);
  };
  const auto used = [&](std::size_t set, int rank) {
    std::int64_t bytes = 0;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if ((set >> j & 1) != 0 && jobs[j].made.shard.rank == rank) {
        bytes += BytesOf(made.request, made.plan, jobs[j].made);
      }
    }
    for (const Old& old : olds) {
      const bool pending = std::any_of(old.users.begin(), old.users.end(),
                                       [&](std::size_t j) { return (set >> j & 1) == 0; });
      if (old.held.shard.rank == rank && (pending || stays(old))) {
        bytes += BytesOf(made.request, before, old.held);
      }
    }
    return bytes;
  };
  const std::size_t all = (std::size_t{1} << jobs.size()) - 1;
  std::vector<bool> reached(all + 1);
  reached[0] = true;
  for (std::size_t set = 0; set <= all; ++set) {
    if (!reached[set]) continue;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if ((set >> j & 1) != 0) continue;
      const int rank = jobs[j].made.shard.rank;
      const std::int64_t bytes = used(set, rank) + BytesOf(made.request, made.plan, jobs[j].made);
      if (bytes <= resharding.capacity_bytes[static_cast<std::size_t>(rank)]) {
        reached[set | std::size_t{1} << j] = true;
      }
    }
  }
  return reached[all];
}

TEST(ReshardTest, ABufferIsTakenOnlyWhereNoOrderDoesWithout) {
  Random random(12);
  int compared = 0;
  int with_buffer = 0;
  for (int round = 0; round < 1500; ++round) {
    const RandomCase made = MakeCase(random, 4, 0.6);
    const auto resharding = Reshard(made.request, made.plan);
    ASSERT_TRUE(resharding.ok()) << resharding.status();
    std::size_t jobs = 0;
    for (const ReshardingStep& step : resharding->steps) jobs += step.made.size();
    if (jobs > 10) continue;
    ++compared;
    if (resharding->order != OrderKind::kFits) ++with_buffer;
    ASSERT_NE(resharding->order, OrderKind::kNoneFound);
    ASSERT_EQ(resharding->order == OrderKind::kFits, SomeOrderFits(made, *resharding)) << round;
  }
  EXPECT_GT(compared, 700);
  EXPECT_GT(with_buffer, 50);
}

// Two tables of 10 x 4 fp32 cells on two ranks of a host, a third rank on another.
class ReshardTwoTablesTest : public ::testing::Test {
 protected:
  ReshardTwoTablesTest() {
    request_.tables = {TableOf("a", 10, 4), TableOf("b", 10, 4)};
    request_.memory.rule = MemoryRule::kWeightsOnly;
    request_.topology.devices = {{0, 160}, {0, 160}, {1, 160}};
    request_.migration.emplace().previous.tables = {On("a", 0), On("b", 1)};
  }
  static TablePlan On(const std::string& name, int rank) {
    TablePlan plan;
    plan.name = name;
    plan.shards = {{0, 10, 0, 4, rank}};
    return plan;
  }
  Plan To(int a, int b) const {
    Plan plan;
    plan.tables = {On("a", a), On("b", b)};
    return plan;
  }

  PlanRequest request_;
};

TEST_F(ReshardTwoTablesTest, WhatStaysIsNotMentioned) {
  const auto resharding = Reshard(request_, To(0, 1));
  ASSERT_TRUE(resharding.ok());
  EXPECT_THAT(resharding->steps, IsEmpty());
  EXPECT_THAT(resharding->peak_bytes, ElementsAre(160, 160, 0));
}

TEST_F(ReshardTwoTablesTest, ARankIsLeftBeforeItIsFilled) {
  request_.optimizer = Optimizer::kAdagrad;
  const auto resharding = Reshard(request_, To(1, 2));
  ASSERT_TRUE(resharding.ok());
  ASSERT_THAT(resharding->steps, SizeIs(2));
  EXPECT_EQ(resharding->steps[0].made[0].made.table, 1);
  EXPECT_EQ(resharding->steps[1].made[0].made.table, 0);
  const MovedPart& part = resharding->steps[1].made[0].parts.at(0);
  EXPECT_EQ(part, (MovedPart{{0, 10, 0, 4, 1}, 0, PartLink::kIntraHost, 160, 160}));
  EXPECT_EQ(resharding->bytes_by_link[static_cast<std::size_t>(PartLink::kIntraHost)], 320);
  EXPECT_EQ(resharding->bytes_by_link[static_cast<std::size_t>(PartLink::kInterHost)], 320);
  EXPECT_EQ(resharding->order, OrderKind::kFits);
}

TEST_F(ReshardTwoTablesTest, MovesThatFitTogetherAreOneStep) {
  for (Device& device : request_.topology.devices) device.memory_bytes = 320;
  const auto resharding = Reshard(request_, To(1, 0));
  ASSERT_TRUE(resharding.ok());
  EXPECT_THAT(resharding->steps, SizeIs(1));
  EXPECT_THAT(resharding->peak_bytes, ElementsAre(320, 320, 0));
}

TEST_F(ReshardTwoTablesTest, ACycleIsNamedWithTheBufferThatItNeeds) {
  const auto resharding = Reshard(request_, To(1, 0));
  ASSERT_TRUE(resharding.ok());
  EXPECT_EQ(resharding->order, OrderKind::kNeedsBuffer);
  EXPECT_EQ(resharding->buffer_bytes, 160);
  const Shard a = {0, 10, 0, 4, 0};
  const Shard b = {0, 10, 0, 4, 1};
  EXPECT_THAT(resharding->cycle, ElementsAre(Waiting{0, {1, {0, 10, 0, 4, 0}}, {0, a}, 1},
                                             Waiting{1, {0, {0, 10, 0, 4, 1}}, {1, b}, 0}));
  EXPECT_EQ(resharding->steps[0].to_buffer.size(), 1u);
  EXPECT_EQ(resharding->bytes_by_link[static_cast<std::size_t>(PartLink::kBuffer)], 160);
}

TEST_F(ReshardTwoTablesTest, GoneTablesMakeRoomAndNewOnesComeLast) {
  request_.tables = {TableOf("a", 10, 4), TableOf("new", 10, 4)};
  Plan plan;
  plan.tables = {On("a", 1), On("new", 0)};
  const auto resharding = Reshard(request_, plan);
  ASSERT_TRUE(resharding.ok());
  ASSERT_THAT(resharding->steps, SizeIs(1));
  EXPECT_THAT(resharding->steps[0].made, SizeIs(1));
}

TEST_F(ReshardTwoTablesTest, ShardsOfRanksThatAreGoneComeFromOutside) {
  request_.migration->previous.tables[0].shards[0].rank = 9;
  const auto resharding = Reshard(request_, To(0, 1));
  ASSERT_TRUE(resharding.ok());
  EXPECT_EQ(resharding->steps.at(0).made.at(0).parts.at(0).link, PartLink::kOutside);
  EXPECT_EQ(resharding->steps[0].made[0].parts[0].from_rank, 9);
}

TEST_F(ReshardTwoTablesTest, APlanThatDoesNotFitIsNamed) {
  const auto resharding = Reshard(request_, To(1, 1));
  EXPECT_EQ(resharding.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(resharding.status()), HasSubstr("rank 1: "));
  request_.migration.reset();
  EXPECT_FALSE(Reshard(request_, To(0, 1)).ok());
}

// A rotation of many tables over ranks that are full but for one: a chain as long as it gets.
TEST(ReshardManyTest, ALongChainIsFound) {
  PlanRequest request;
  request.memory.rule = MemoryRule::kWeightsOnly;
  constexpr int kRanks = 64;
  constexpr int kEach = 20;
  request.topology.devices.assign(kRanks, {0, kEach * 160});
  request.topology.devices.back().memory_bytes += 160;
  Plan plan;
  Plan& before = request.migration.emplace().previous;
  for (int t = 0; t < kRanks * kEach; ++t) {
    request.tables.push_back(TableOf("t" + std::to_string(t), 10, 4));
    TablePlan table;
    table.name = request.tables.back().name;
    table.shards = {{0, 10, 0, 4, t % kRanks}};
    before.tables.push_back(table);
    table.shards[0].rank = (t + 1) % kRanks;
    plan.tables.push_back(table);
  }
  const auto resharding = Reshard(request, plan);
  ASSERT_TRUE(resharding.ok());
  EXPECT_EQ(resharding->order, OrderKind::kFits);
  Simulation simulation(request, plan);
  ASSERT_NO_FATAL_FAILURE(simulation.Run(*resharding));
}

}  // namespace
}  // namespace neuroshard
