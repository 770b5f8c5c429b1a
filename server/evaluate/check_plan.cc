#include "server/evaluate/check_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/bytes.h"
#include "common/domain/memory_use.h"
#include "server/evaluate/shard_range.h"

namespace neuroshard {
namespace {

std::string Quote(std::int64_t bytes) {
  return fmt::format("{} bytes ({})", bytes, FormatBytes(bytes));
}

class PlanChecker {
 public:
  PlanChecker(const PlanRequest& request, const Plan& plan)
      : request_(request), plan_(plan), rank_memory_(request.topology.devices.size()) {
    for (std::size_t i = 0; i < request.tables.size(); ++i) {
      index_of_.emplace(request.tables[i].name, i);
    }
  }

  std::vector<Violation> Run() {
    CheckWorld();
    CheckTables();
    CheckMemory();
    std::vector<Violation> found = violations_.kept();
    if (violations_.count() > found.size()) {
      found.push_back(
          {"plan", fmt::format("{} more violations", violations_.count() - found.size())});
    }
    return found;
  }

 private:
  void CheckWorld() {
    const int ranks = request_.topology.num_ranks();
    if (plan_.world_size != ranks) {
      violations_.Add(
          "plan.world_size",
          fmt::format("must be {}, the ranks of the topology, got {}", ranks, plan_.world_size));
    }
    const int per_host = request_.topology.ranks_per_host();
    if (plan_.local_world_size != per_host) {
      violations_.Add(
          "plan.local_world_size",
          fmt::format("must be {}, {}, got {}", per_host,
                      per_host == 0 ? "since hosts differ in ranks" : "the ranks of a host",
                      plan_.local_world_size));
    }
  }

  void CheckTables() {
    std::vector<std::size_t> seen_at(request_.tables.size(), plan_.tables.size());
    for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
      const TablePlan& table_plan = plan_.tables[t];
      const std::string path = fmt::format("plan.tables[{}]", t);
      const auto found = index_of_.find(table_plan.name);
      if (found == index_of_.end()) {
        violations_.Add(path + ".name",
                        fmt::format("'{}' is not a table of the request", table_plan.name));
        continue;
      }
      std::size_t& first = seen_at[found->second];
      if (first != plan_.tables.size()) {
        violations_.Add(path + ".name", fmt::format("'{}' already appears as plan.tables[{}]",
                                                    table_plan.name, first));
      } else {
        first = t;
      }
      const Table& table = request_.tables[found->second];
      if (table_plan.module != table.module) {
        violations_.Add(path + ".module", fmt::format("must be '{}' as in the request, got '{}'",
                                                      table.module, table_plan.module));
      }
      CheckShards(table, table_plan, path);
    }
    for (std::size_t i = 0; i < seen_at.size(); ++i) {
      if (seen_at[i] == plan_.tables.size()) {
        violations_.Add("plan.tables",
                        fmt::format("table '{}' (tables[{}] of the request) is missing",
                                    request_.tables[i].name, i));
      }
    }
  }

  void CheckShards(const Table& table, const TablePlan& table_plan, const std::string& path) {
    if (table_plan.shards.empty()) {
      violations_.Add(path + ".shards", "must hold at least one shard, got none");
      return;
    }
    if (table_plan.sharding_type == ShardingType::kTableWise && table_plan.shards.size() != 1) {
      violations_.Add(
          path + ".shards",
          fmt::format("table_wise must have exactly one shard, got {}", table_plan.shards.size()));
    }
    bool tiles = true;
    for (std::size_t s = 0; s < table_plan.shards.size(); ++s) {
      tiles =
          CheckShard(table, table_plan.shards[s], fmt::format("{}.shards[{}]", path, s)) && tiles;
    }
    // Gaps and overlaps between shards that are wrong by themselves would only repeat what was
    // said.
    if (tiles) CheckTiling(table, table_plan.shards, path);
  }

  bool CheckShard(const Table& table, const Shard& shard, const std::string& path) {
    const int num_ranks = request_.topology.num_ranks();
    const std::size_t before = violations_.count();
    if (CheckShardRange(table, shard, num_ranks, path, violations_)) {
      rank_memory_[static_cast<std::size_t>(shard.rank)] +=
          ShardMemory(request_, table, shard.rows, shard.cols);
      if (shard.rows != table.num_embeddings) {
        violations_.Add(path + ".rows", fmt::format("must be all {} rows of the table, got {}",
                                                    table.num_embeddings, shard.rows));
      }
      if (shard.col_offset % kColumnAlignment != 0) {
        violations_.Add(path + ".col_offset", fmt::format("must be a multiple of {}, got {}",
                                                          kColumnAlignment, shard.col_offset));
      }
      const bool ends_ragged = table.embedding_dim % kColumnAlignment != 0 &&
                               shard.col_offset + shard.cols == table.embedding_dim;
      if (shard.cols % kColumnAlignment != 0 && !ends_ragged) {
        violations_.Add(path + ".cols", fmt::format("must be a multiple of {}, got {}",
                                                    kColumnAlignment, shard.cols));
      }
    }
    return violations_.count() == before;
  }

  // Every shard is in range and has all rows.
  void CheckTiling(const Table& table, const std::vector<Shard>& shards, const std::string& path) {
    std::vector<std::size_t> order(shards.size());
    for (std::size_t s = 0; s < order.size(); ++s) order[s] = s;
    const auto by_offset = [&](std::size_t a, std::size_t b) {
      return shards[a].col_offset < shards[b].col_offset;
    };
    if (!std::is_sorted(order.begin(), order.end(), by_offset)) {
      violations_.Add(path + ".shards", "must be in ascending order of col_offset");
      std::stable_sort(order.begin(), order.end(), by_offset);
    }
    std::int64_t covered = 0;
    for (const std::size_t s : order) {
      const Shard& shard = shards[s];
      if (shard.col_offset > covered) {
        violations_.Add(path + ".shards", fmt::format("columns [{}, {}) of '{}' are in no shard",
                                                      covered, shard.col_offset, table.name));
      } else if (shard.col_offset < covered) {
        violations_.Add(fmt::format("{}.shards[{}].col_offset", path, s),
                        fmt::format("columns [{}, {}) are in another shard too", shard.col_offset,
                                    std::min(covered, shard.col_offset + shard.cols)));
      }
      covered = std::max(covered, shard.col_offset + shard.cols);
    }
    if (covered < table.embedding_dim) {
      violations_.Add(path + ".shards", fmt::format("columns [{}, {}) of '{}' are in no shard",
                                                    covered, table.embedding_dim, table.name));
    }
  }

  void CheckMemory() {
    for (std::size_t r = 0; r < rank_memory_.size(); ++r) {
      MemoryUse& use = rank_memory_[r];
      if (use.total_bytes() == 0) continue;
      const std::int64_t capacity = request_.topology.devices[r].memory_bytes;
      use.reserve_bytes = ReserveBytes(request_.memory, capacity);
      if (use.total_bytes() > capacity) {
        violations_.Add("plan.tables",
                        fmt::format("rank {} needs {}, {} of it reserve, but has {}: {} bytes over",
                                    r, Quote(use.total_bytes()), use.reserve_bytes, Quote(capacity),
                                    use.total_bytes() - capacity));
      }
    }
  }

  const PlanRequest& request_;
  const Plan& plan_;
  std::unordered_map<std::string_view, std::size_t> index_of_;
  std::vector<MemoryUse> rank_memory_;
  Violations violations_;
};

}  // namespace

std::vector<Violation> CheckPlan(const PlanRequest& request, const Plan& plan) {
  return PlanChecker(request, plan).Run();
}

}  // namespace neuroshard
