#include "common/domain/resharding.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
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

TierBytes BytesOf(const PlanRequest& request, const Plan& plan, const TableShard& held) {
  const std::size_t table = static_cast<std::size_t>(held.table);
  const MemoryUse use = ShardMemory(request, request.tables[table], LayoutOf(plan.tables[table]),
                                    held.shard.rows, held.shard.cols);
  TierBytes bytes = use.by_tier();
  bytes[MemoryTier::kDevice] -= use.input_bytes + use.output_bytes;
  return bytes;
}

// A memory of one rank or of several.
struct Limit {
  MemoryTier tier = MemoryTier::kDevice;
  std::set<int> ranks;
  std::int64_t bytes = 0;
  bool of_rank = true;  // not a whole host's
};

std::vector<Limit> LimitsOf(const PlanRequest& request) {
  const Topology& topology = request.topology;
  std::vector<Limit> limits;
  for (int r = 0; r < topology.num_ranks(); ++r) {
    const Device& device = topology.devices[static_cast<std::size_t>(r)];
    limits.push_back({MemoryTier::kDevice,
                      {r},
                      device.memory_bytes - ReserveBytes(request.memory, device.memory_bytes)});
  }
  for (const SharedMemory& memory : kSharedMemories) {
    const auto& of_hosts = topology.*memory.of_hosts;
    for (int h = 0; h < static_cast<int>(of_hosts.size()); ++h) {
      Limit of_host{memory.tier, {}, of_hosts[static_cast<std::size_t>(h)], false};
      std::vector<Limit> of_ranks;
      for (int r = 0; r < topology.num_ranks(); ++r) {
        const Device& device = topology.devices[static_cast<std::size_t>(r)];
        if (device.host != h) continue;
        of_host.ranks.insert(r);
        const std::int64_t most = device.*memory.most;
        if (most > 0) of_ranks.push_back({memory.tier, {r}, most});
      }
      limits.push_back(of_host);
      limits.insert(limits.end(), of_ranks.begin(), of_ranks.end());
    }
  }
  return limits;
}

// Plays a resharding on ranks of the plan in place, cell by cell; tables have the same positions in
// the request and in both plans.
class Simulation {
 public:
  Simulation(const PlanRequest& request, const Plan& plan)
      : request_(request),
        plan_(plan),
        limits_(LimitsOf(request)),
        held_(request.topology.devices.size()),
        peak_(limits_.size()) {
    const Plan& before = request.migration->previous;
    for (std::size_t t = 0; t < before.tables.size(); ++t) {
      for (const Shard& shard : before.tables[t].shards) {
        Hold({static_cast<int>(t), shard}, before, false);
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
      std::multiset<Place> now;
      for (const auto& [key, bytes] : held_[rank]) now.insert(key.first);
      std::multiset<Place> wanted;
      for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
        for (const Shard& shard : plan_.tables[t].shards) {
          if (shard.rank == static_cast<int>(rank)) {
            wanted.insert(PlaceOf({static_cast<int>(t), shard}));
          }
        }
      }
      ASSERT_EQ(now, wanted) << "rank " << rank;
      ASSERT_LE(peak_[rank], resharding.peak_bytes[rank]) << "rank " << rank;
    }
    ASSERT_EQ(held_.size() + resharding.shared.size(), limits_.size());
    for (std::size_t i = 0; i < resharding.shared.size(); ++i) {
      const SharedMemoryPeak& shared = resharding.shared[i];
      const Limit& limit = limits_[held_.size() + i];
      ASSERT_EQ(shared.memory, limit.tier);
      ASSERT_EQ(shared.capacity_bytes, limit.bytes);
      ASSERT_EQ(shared.host, request_.topology.devices[AsIndex(*limit.ranks.begin())].host);
      ASSERT_LE(peak_[held_.size() + i], shared.peak_bytes) << "limit " << i;
    }
  }

 private:
  using Place = std::tuple<int, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  using Key = std::pair<Place, bool>;  // whether it is one of the new plan
  static std::size_t AsIndex(int rank) { return static_cast<std::size_t>(rank); }
  static Place PlaceOf(const TableShard& held) {
    return {held.table, held.shard.row_offset, held.shard.rows, held.shard.col_offset,
            held.shard.cols};
  }
  std::map<Key, TierBytes>& On(int rank) { return held_[AsIndex(rank)]; }

  void Hold(const TableShard& shard, const Plan& plan, bool is_new) {
    ASSERT_TRUE(On(shard.shard.rank)
                    .emplace(Key(PlaceOf(shard), is_new), BytesOf(request_, plan, shard))
                    .second);
  }
  void Drop(const TableShard& shard) {
    ASSERT_EQ(On(shard.shard.rank).erase({PlaceOf(shard), false}), 1u);
  }

  std::int64_t Used(const Limit& limit) {
    std::int64_t bytes = 0;
    for (const int rank : limit.ranks) {
      for (const auto& [key, held] : On(rank)) bytes += held[limit.tier];
    }
    return bytes;
  }

  static bool Covers(const Key& holder, int table, const Shard& part) {
    const auto& [of, row, rows, col, cols] = holder.first;
    return !holder.second && of == table && row <= part.row_offset &&
           part.row_offset + part.rows <= row + rows && col <= part.col_offset &&
           part.col_offset + part.cols <= col + cols;
  }

  void Run(const ReshardingStep& step) {
    std::vector<std::int64_t> added(limits_.size());
    for (const MadeShard& made : step.made) {
      const Shard& shard = made.made.shard;
      for (std::size_t l = 0; l < limits_.size(); ++l) {
        if (!limits_[l].ranks.contains(shard.rank)) continue;
        added[l] += BytesOf(request_, plan_, made.made)[limits_[l].tier];
      }
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
    for (std::size_t l = 0; l < limits_.size(); ++l) {
      const std::int64_t used = Used(limits_[l]) + added[l];
      peak_[l] = std::max(peak_[l], used);
      if (added[l] > 0) {
        ASSERT_LE(used, limits_[l].bytes) << "limit " << l;
      }
    }
    for (const TableShard& shard : step.to_buffer) {
      const auto place = On(shard.shard.rank).find({PlaceOf(shard), false});
      ASSERT_NE(place, On(shard.shard.rank).end());
      buffer_.insert(*place);
      ++most_buffered_;
    }
    for (const TableShard& shard : step.freed) Drop(shard);
    for (const MadeShard& made : step.made) Hold(made.made, plan_, true);
  }

  const PlanRequest& request_;
  const Plan& plan_;
  const std::vector<Limit> limits_;
  std::vector<std::map<Key, TierBytes>> held_;
  std::map<Key, TierBytes> buffer_;  // never emptied: what is there may be read
  int most_buffered_ = 0;
  std::vector<std::int64_t> peak_;  // by limit
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

// Of a table on device memory, in host memory or on SSD.
void GiveKernel(Random& random, TablePlan& plan) {
  if (plan.sharding_type == ShardingType::kDataParallel) return;
  constexpr ComputeKernel kKernels[] = {ComputeKernel::kFused, ComputeKernel::kFusedUvm,
                                        ComputeKernel::kFusedUvmCaching, ComputeKernel::kKeyValue};
  plan.compute_kernel = kKernels[random.Below(std::size(kKernels))];
  if (HasCache(plan.compute_kernel)) plan.cache_load_factor = random.Below(2) == 0 ? 0.25 : 0.5;
}

// With `all_memories`, tables and limits also of host memory and SSDs.
RandomCase MakeCase(Random& random, int max_tables, double max_slack, bool all_memories = false) {
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
    if (!all_memories) continue;
    if (random.Below(3) == 0) made.plan.tables.back() = before.tables.back();
    GiveKernel(random, before.tables.back());
    GiveKernel(random, made.plan.tables.back());
  }
  Topology& topology = made.request.topology;
  for (int r = 0; r < ranks; ++r) topology.devices.push_back({.host = r / 2});
  if (all_memories) {
    const std::size_t hosts = topology.hosts().size();
    for (const SharedMemory& memory : kSharedMemories) {
      (topology.*memory.of_hosts).assign(hosts, 0);
    }
    for (Device& device : topology.devices) {
      for (const SharedMemory& memory : kSharedMemories) {
        device.*memory.most = random.Below(3) == 0 ? 1 : 0;
      }
    }
  }
  const std::vector<Limit> limits = LimitsOf(made.request);
  std::vector<std::int64_t> needed(limits.size());
  for (const Plan* plan : {&before, &made.plan}) {
    std::vector<std::int64_t> bytes(needed.size());
    for (std::size_t t = 0; t < plan->tables.size(); ++t) {
      for (const Shard& shard : plan->tables[t].shards) {
        const TierBytes held = BytesOf(made.request, *plan, {static_cast<int>(t), shard});
        for (std::size_t l = 0; l < limits.size(); ++l) {
          if (limits[l].ranks.contains(shard.rank)) bytes[l] += held[limits[l].tier];
        }
      }
    }
    // Sometimes only the new plan fits.
    if (plan == &before && random.Below(5) == 0) continue;
    for (std::size_t l = 0; l < needed.size(); ++l) needed[l] = std::max(needed[l], bytes[l]);
  }
  made.request.memory.reserve_bytes = 7;
  for (std::size_t l = 0; l < limits.size(); ++l) {
    const double slack = 1 + max_slack * random.UniformReal();
    const auto bytes = static_cast<std::int64_t>(static_cast<double>(needed[l]) * slack);
    const std::size_t rank = static_cast<std::size_t>(*limits[l].ranks.begin());
    Device& device = topology.devices[rank];
    if (limits[l].tier == MemoryTier::kDevice) {
      device.memory_bytes = 7 + bytes;
      continue;
    }
    const SharedMemory& memory = SharedMemoryOf(limits[l].tier);
    if (limits[l].of_rank) {
      device.*memory.most = std::max(bytes, std::int64_t{1});
    } else {
      (topology.*memory.of_hosts)[static_cast<std::size_t>(device.host)] = bytes;
    }
  }
  return made;
}

TEST(ReshardTest, EveryRankEndsWithThePlanAndIsNeverOverItsMemory) {
  Random random(11);
  std::map<OrderKind, int> kinds;
  std::map<MemoryTier, int> waits;
  for (int round = 0; round < testing::Trials(2000); ++round) {
    const RandomCase made = MakeCase(random, 8, round % 2 == 0 ? 0.3 : 1.5, round % 3 != 0);
    const auto resharding = Reshard(made.request, made.plan);
    ASSERT_TRUE(resharding.ok()) << resharding.status();
    Simulation simulation(made.request, made.plan);
    ASSERT_NO_FATAL_FAILURE(simulation.Run(*resharding)) << "round " << round;
    ++kinds[resharding->order];
    for (const Waiting& waiting : resharding->cycle) ++waits[waiting.memory];
  }
  EXPECT_GE(kinds[OrderKind::kFits], testing::FewestCases(501));
  EXPECT_GE(kinds[OrderKind::kNeedsBuffer], testing::FewestCases(101));
  for (const auto& word : kWords<MemoryTier>) {
    EXPECT_GE(waits[word.value], testing::FewestCases(31)) << word.text;
  }
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
  const auto used = [&](std::size_t set, const Limit& limit) {
    std::int64_t bytes = 0;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if ((set >> j & 1) != 0 && limit.ranks.contains(jobs[j].made.shard.rank)) {
        bytes += BytesOf(made.request, made.plan, jobs[j].made)[limit.tier];
      }
    }
    for (const Old& old : olds) {
      const bool pending = std::any_of(old.users.begin(), old.users.end(),
                                       [&](std::size_t j) { return (set >> j & 1) == 0; });
      if (limit.ranks.contains(old.held.shard.rank) && (pending || stays(old))) {
        bytes += BytesOf(made.request, before, old.held)[limit.tier];
      }
    }
    return bytes;
  };
  const std::vector<Limit> limits = LimitsOf(made.request);
  const std::size_t all = (std::size_t{1} << jobs.size()) - 1;
  std::vector<bool> reached(all + 1);
  reached[0] = true;
  for (std::size_t set = 0; set <= all; ++set) {
    if (!reached[set]) continue;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if ((set >> j & 1) != 0) continue;
      const int rank = jobs[j].made.shard.rank;
      const TierBytes bytes = BytesOf(made.request, made.plan, jobs[j].made);
      if (std::all_of(limits.begin(), limits.end(), [&](const Limit& limit) {
            return !limit.ranks.contains(rank) || bytes[limit.tier] == 0 ||
                   used(set, limit) + bytes[limit.tier] <= limit.bytes;
          })) {
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
    const RandomCase made = MakeCase(random, 4, 0.6, round % 2 == 0);
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

// Both tables in host memory that has room for one of them besides what is there.
TEST_F(ReshardTwoTablesTest, HostMemoryIsAMemoryToo) {
  const auto in_host_memory = [](Plan plan) {
    for (TablePlan& table : plan.tables) table.compute_kernel = ComputeKernel::kFusedUvm;
    return plan;
  };
  request_.topology.devices[1].host = 1;
  request_.topology.devices.pop_back();
  request_.topology.host_memory_bytes = {200, 200};
  request_.migration->previous = in_host_memory(request_.migration->previous);
  const auto resharding = Reshard(request_, in_host_memory(To(1, 0)));
  ASSERT_TRUE(resharding.ok()) << resharding.status();
  EXPECT_EQ(resharding->order, OrderKind::kNeedsBuffer);
  EXPECT_EQ(resharding->buffer_bytes, 160);
  ASSERT_THAT(resharding->cycle, SizeIs(2));
  EXPECT_EQ(resharding->cycle[0].memory, MemoryTier::kHost);
  EXPECT_THAT(resharding->shared,
              ElementsAre(SharedMemoryPeak{MemoryTier::kHost, 0, {}, 160, 200},
                          SharedMemoryPeak{MemoryTier::kHost, 1, {}, 160, 200}));
  EXPECT_THAT(resharding->peak_bytes, ElementsAre(0, 0));

  // One host, whose memory the ranks share: there is room for neither of them twice.
  request_.topology.devices[1].host = 0;
  request_.topology.host_memory_bytes = {400};
  EXPECT_EQ(Reshard(request_, in_host_memory(To(1, 0)))->order, OrderKind::kNeedsBuffer);
  // For one after the other, but for the limit of one rank.
  request_.topology.host_memory_bytes = {480};
  EXPECT_EQ(Reshard(request_, in_host_memory(To(1, 0)))->order, OrderKind::kFits);
  EXPECT_THAT(Reshard(request_, in_host_memory(To(1, 0)))->steps, SizeIs(2));
  request_.topology.devices[0].max_host_memory_bytes = 200;
  EXPECT_EQ(Reshard(request_, in_host_memory(To(1, 0)))->order, OrderKind::kFits);
  request_.topology.devices[1].max_host_memory_bytes = 200;
  EXPECT_EQ(Reshard(request_, in_host_memory(To(1, 0)))->order, OrderKind::kNeedsBuffer);

  request_.topology.host_memory_bytes = {300};
  const Status status = Reshard(request_, in_host_memory(To(1, 0))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("host 0: "));
}

TEST_F(ReshardTwoTablesTest, ATableThatChangesMemoryOnItsRankMoves) {
  request_.topology.host_memory_bytes = {320, 320};
  Plan plan = To(0, 1);
  plan.tables[0].compute_kernel = ComputeKernel::kFusedUvm;
  const auto resharding = Reshard(request_, plan);
  ASSERT_TRUE(resharding.ok()) << resharding.status();
  ASSERT_THAT(resharding->steps, SizeIs(1));
  EXPECT_EQ(resharding->steps[0].made.at(0).parts.at(0), (MovedPart{{0, 10, 0, 4, 0},
                                                                    0,
                                                                    PartLink::kSameRank,
                                                                    160,
                                                                    0,
                                                                    MemoryTier::kDevice,
                                                                    MemoryTier::kHost}));
  EXPECT_EQ(resharding->bytes_by_link[static_cast<std::size_t>(PartLink::kSameRank)], 160);

  // Another cache is made anew, and its rows are in the same memory.
  request_.migration->previous = plan;
  plan.tables[0].compute_kernel = ComputeKernel::kFusedUvmCaching;
  plan.tables[0].cache_load_factor = 0.5;
  const auto cached = Reshard(request_, plan);
  ASSERT_TRUE(cached.ok()) << cached.status();
  EXPECT_THAT(cached->steps, SizeIs(1));
  EXPECT_EQ(cached->bytes_by_link, decltype(cached->bytes_by_link){});
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
