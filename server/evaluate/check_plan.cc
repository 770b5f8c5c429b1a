#include "server/evaluate/check_plan.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/bytes.h"
#include "common/domain/memory_use.h"
#include "common/domain/table_names.h"
#include "server/evaluate/check_constraints.h"
#include "server/evaluate/check_layout.h"
#include "server/evaluate/rules/row_cuts.h"

namespace neuroshard {
namespace {

std::string Quote(std::int64_t bytes) {
  return fmt::format("{} bytes ({})", bytes, FormatBytes(bytes));
}

class PlanChecker {
 public:
  PlanChecker(const PlanRequest& request, const Plan& plan)
      : request_(request),
        plan_(plan),
        hosts_(request.topology.hosts()),
        rank_memory_(request.topology.devices.size()),
        row_cuts_(request),
        names_(request.tables) {}

  std::vector<Violation> Run() {
    CheckWorld();
    CheckTables();
    CheckMemory();
    for (const SharedMemory& memory : kSharedMemories) CheckShared(memory);
    CheckConstraints(request_, plan_, placed_, violations_);
    CheckMissing();
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
      violations_.Add("plan.world_size", "must be {}, the ranks of the topology, got {}", ranks,
                      plan_.world_size);
    }
    const int per_host = request_.topology.ranks_per_host();
    if (plan_.local_world_size != per_host) {
      violations_.Add("plan.local_world_size", "must be {}, {}, got {}", per_host,
                      per_host == 0 ? "since hosts differ in ranks" : "the ranks of a host",
                      plan_.local_world_size);
    }
  }

  void CheckTables() {
    seen_at_.assign(request_.tables.size(), plan_.tables.size());
    const std::vector<int> table_of = TablesOf(plan_, request_.tables);
    for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
      const TablePlan& table_plan = plan_.tables[t];
      const std::string path = fmt::format("plan.tables[{}]", t);
      if (table_of[t] < 0) {
        violations_.Add(path + ".name",
                        names_.WhyUnresolved(FullName(table_plan.module, table_plan.name)));
        continue;
      }
      const std::size_t index = static_cast<std::size_t>(table_of[t]);
      std::size_t& first = seen_at_[index];
      if (first != plan_.tables.size()) {
        violations_.Add(path + ".name", "'{}' already appears as plan.tables[{}]",
                        names_.ReferenceTo(table_of[t]), first);
      } else {
        first = t;
      }
      const Table& table = request_.tables[index];
      if (table_plan.module != table.module) {
        violations_.Add(path + ".module", "must be '{}' as in the request, got '{}'", table.module,
                        table_plan.module);
      }
      if (table_plan.kind && *table_plan.kind != table.kind) {
        violations_.Add(path + ".kind", "must be {} as in the request, got {}", ToText(table.kind),
                        ToText(*table_plan.kind));
      }
      CheckShards(index, t, path);
    }
    CheckUnpooledTables(request_, plan_, table_of, violations_);
  }

  // Last, so that what many missing tables have to say leaves room for everything else.
  void CheckMissing() {
    for (std::size_t i = 0; i < seen_at_.size(); ++i) {
      if (seen_at_[i] == plan_.tables.size()) {
        violations_.Add("plan.tables", "table '{}' (tables[{}] of the request) is missing",
                        names_.ReferenceTo(static_cast<int>(i)), i);
      }
    }
  }

  void CheckShards(std::size_t table_index, std::size_t entry, const std::string& path) {
    const Table& table = request_.tables[table_index];
    const TablePlan& table_plan = plan_.tables[entry];
    if (table_plan.shards.empty()) {
      violations_.Add(path + ".shards", "must hold at least one shard, got none");
      return;
    }
    const RowCut& row_cut = row_cuts_.of(static_cast<int>(table_index));
    const ShardLayout layout = LayoutOf(table_plan, row_cut);
    bool in_range = true;
    for (std::size_t s = 0; s < table_plan.shards.size(); ++s) {
      const Shard& shard = table_plan.shards[s];
      if (!CheckShardRange(table, layout.type, shard, request_.topology.num_ranks(), {entry, s},
                           violations_)) {
        in_range = false;
        continue;
      }
      placed_.push_back({table_index, entry, s});
      const std::size_t rank = static_cast<std::size_t>(shard.rank);
      rank_memory_[rank] += ShardMemory(request_, table, layout, shard.rows, shard.cols);
    }
    // Gaps and overlaps between shards that are wrong by themselves would only repeat what was
    // said.
    if (in_range) {
      CheckLayout(table, table_plan, hosts_, request_.topology, row_cut, path, violations_);
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
                        "rank {} needs {}, {} of it reserve, but has {}: {} bytes over", r,
                        Quote(use.total_bytes()), use.reserve_bytes, Quote(capacity),
                        use.total_bytes() - capacity);
      }
    }
  }

  // Where no host has any of the memory, CheckLayout names the kernels of the tables that would be
  // there; what caches of other tables take is said here.
  void CheckShared(const SharedMemory& of) {
    const std::vector<std::int64_t>& of_hosts = request_.topology.*of.of_hosts;
    for (std::size_t h = 0; h < hosts_.size(); ++h) {
      MemoryUse of_host;
      for (int i = 0; i < hosts_[h].count; ++i) {
        const std::size_t r = static_cast<std::size_t>(hosts_[h].first + i);
        of_host += rank_memory_[r];
        const std::int64_t bytes = rank_memory_[r].by_tier()[of.tier];
        const std::int64_t most = request_.topology.devices[r].*of.most;
        if (most == 0 || bytes <= most) continue;
        violations_.Add(
            "plan.tables",
            "rank {} needs {} of the {} of host {}, but may take {} ({}): {} bytes over", r,
            Quote(bytes), of.name, h, Quote(most), of.most_field, bytes - most);
      }
      const std::int64_t bytes = of_host.by_tier()[of.tier];
      const std::int64_t capacity = of_hosts.empty() ? 0 : of_hosts[h];
      const bool has_caches_of_others =
          of.tier == MemoryTier::kHost && of_host.caches[MemoryTier::kHost] > 0;
      if (bytes <= capacity || (of_hosts.empty() && !has_caches_of_others)) continue;
      violations_.Add(
          "plan.tables",
          "host {} needs {} of its {} for the tables of its ranks, but has {} ({}): {} bytes over",
          h, Quote(bytes), of.name, Quote(capacity), of.field, bytes - capacity);
    }
  }

  const PlanRequest& request_;
  const Plan& plan_;
  const std::vector<HostRanks> hosts_;
  std::vector<MemoryUse> rank_memory_;
  const RowCuts row_cuts_;
  std::vector<std::size_t> seen_at_;  // by table: its entry of the plan
  const TableNames names_;
  std::vector<PlacedShard> placed_;
  Violations violations_;
};

}  // namespace

std::vector<Violation> CheckPlan(const PlanRequest& request, const Plan& plan) {
  return PlanChecker(request, plan).Run();
}

}  // namespace neuroshard
