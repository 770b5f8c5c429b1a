#include "server/evaluate/check_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "common/domain/tiling.h"
#include "server/evaluate/lay_out.h"
#include "server/evaluate/rules/residency.h"

namespace neuroshard {
namespace {

// A range of at least `least` (0 or 1) of [0, whole). The comparisons are arranged so that no sum
// of two values of the plan is ever formed.
bool CheckRange(std::int64_t offset, std::int64_t size, std::int64_t least, std::int64_t whole,
                const char* offset_name, const char* size_name, ShardPosition position,
                Violations& violations) {
  bool ok = true;
  const auto add = [&](const char* field, std::string description) {
    violations.Add(
        fmt::format("plan.tables[{}].shards[{}].{}", position.table, position.shard, field),
        std::move(description));
  };
  if (offset < 0 || offset > whole - least) {
    add(offset_name,
        fmt::format("must be in [0, {}{}, got {}", whole, least == 0 ? "]" : ")", offset));
    ok = false;
  }
  if (size < least || size > whole) {
    add(size_name, fmt::format("must be in [{}, {}], got {}", least, whole, size));
    ok = false;
  }
  if (ok && offset > whole - size) {
    add(size_name, fmt::format("must be at most {} at {} {} of a table with {}, got {}",
                               whole - offset, offset_name, offset, whole, size));
    ok = false;
  }
  return ok;
}

class LayoutChecker {
 public:
  LayoutChecker(const Table& table, const TablePlan& plan, const std::vector<HostRanks>& hosts,
                const Topology& topology, const RowCut& cut, const std::string& path,
                Violations& violations)
      : table_(table),
        plan_(plan),
        type_(plan.sharding_type),
        hosts_(hosts),
        topology_(topology),
        cut_(cut),
        num_ranks_(hosts.back().first + hosts.back().count),
        path_(path),
        violations_(violations) {}

  void Run() {
    CheckKernel();
    Sort();
    if (type_ == ShardingType::kTableWise && order_.size() != 1) {
      violations_.Add(path_ + ".shards", "table_wise must have exactly one shard, got {}",
                      order_.size());
    }
    CheckColumns();
    if (type_ == ShardingType::kTableColumnWise) CheckOneHost();
  }

 private:
  using Indices = std::span<const std::size_t>;  // of shards, in order

  const Shard& At(std::size_t s) const { return plan_.shards[s]; }

  void CheckKernel() {
    const ComputeKernel kernel = plan_.compute_kernel;
    const MemoryTier tier =
        type_ == ShardingType::kDataParallel ? MemoryTier::kDevice : TierOf(kernel);
    for (const SharedMemory& memory : kSharedMemories) {
      if (memory.tier != tier || !(topology_.*memory.of_hosts).empty()) continue;
      violations_.Add(path_ + ".compute_kernel",
                      "must be {}, since the topology states no {} of hosts ({}), got {}",
                      ToText(KernelOf(type_)), memory.name, memory.field, ToText(kernel));
    }
    if (tier == MemoryTier::kDevice && kernel != KernelOf(type_)) {
      violations_.Add(path_ + ".compute_kernel", "must be {} with {}, got {}",
                      ToText(KernelOf(type_)), ToText(type_), ToText(kernel));
    }
    const double factor = plan_.cache_load_factor;
    const bool caches = HasCache(kernel);
    if (caches ? !(factor > 0 && factor <= 1) : factor != 0) {
      violations_.Add(path_ + ".cache_load_factor", "must be {} with {}, got {}",
                      caches ? "in (0, 1]" : "0", ToText(kernel), factor);
    }
    if (tier != MemoryTier::kSsd) return;
    if (!CanBeOnSsd(table_.weight_dtype)) {
      violations_.Add(path_ + ".compute_kernel",
                      "must not be {}, which FBGEMM has for fp32 and fp16; the table is {}",
                      ToText(kernel), ToText(table_.weight_dtype));
    }
    CheckApart();
  }

  // TorchRec has one parameter a rank for the shards of a table on SSD.
  void CheckApart() {
    std::map<int, std::size_t> first_on;  // by rank
    for (std::size_t s = 0; s < plan_.shards.size(); ++s) {
      const auto [first, is_new] = first_on.emplace(At(s).rank, s);
      if (is_new) continue;
      violations_.Add(fmt::format("{}.shards[{}].rank", path_, s),
                      "must not be {}, where shards[{}] is: a key_value table has one shard a rank",
                      At(s).rank, first->second);
    }
  }

  void Sort() {
    order_ = TilingOrder(plan_.shards);
    if (!std::ranges::is_sorted(order_)) {
      violations_.Add(path_ + ".shards", "must be in ascending order of (col_offset, row_offset)");
    }
  }

  void CheckColumns() {
    CheckColumnTiling(plan_, order_, table_.embedding_dim, path_, violations_,
                      [this](Indices shards) {
                        CheckCut(shards.front());
                        CheckBlock(shards);
                      });
  }

  void CheckCut(std::size_t s) {
    const Shard& shard = At(s);
    if (!CutsColumns(type_) && type_ != ShardingType::kTableWise &&
        shard.cols != table_.embedding_dim) {
      Add(s, "cols", "must be all {} columns of the table in {}, got {}", table_.embedding_dim,
          ToText(type_), shard.cols);
    }
    if (shard.col_offset % kColumnAlignment != 0) {
      Add(s, "col_offset", "must be a multiple of {}, got {}", kColumnAlignment, shard.col_offset);
    }
    const bool ends_ragged = table_.embedding_dim % kColumnAlignment != 0 &&
                             shard.col_offset + shard.cols == table_.embedding_dim;
    if (shard.cols % kColumnAlignment != 0 && !ends_ragged) {
      Add(s, "cols", "must be a multiple of {}, got {}", kColumnAlignment, shard.cols);
    }
  }

  // The shards of one block of columns.
  void CheckBlock(Indices shards) {
    for (const std::size_t s : shards) {
      const std::int64_t cols = At(shards.front()).cols;
      if (At(s).cols != cols) {
        Add(s, "cols", "must be {} as in the first shard at these columns, got {}", cols,
            At(s).cols);
      }
    }
    const Spread spread = SpreadOf(type_);
    if (spread == Spread::kRank) return CheckAllRows(shards);
    if (spread == Spread::kSubset) return CheckSubset(shards);
    const std::int64_t rows = table_.num_embeddings;
    if (spread == Spread::kRows && cut_.multiple > 0 && rows / cut_.multiple < num_ranks_) {
      violations_.Add(path_ + ".sharding_type",
                      "cannot be row_wise with fewer buckets of rows than ranks (row_multiple), {} "
                      "of {} rows for {} ranks",
                      rows / cut_.multiple, cut_.multiple, num_ranks_);
      return;
    }
    const bool on_host = spread == Spread::kOneHost;
    const HostRanks ranks = on_host ? HostOf(At(shards.front()).rank) : HostRanks{0, num_ranks_};
    if (CountIs(shards, ranks.count,
                on_host ? "one shard for each rank of the first one's host"
                        : "one shard for each rank")) {
      if (spread == Spread::kCopies) {
        CheckAllRows(shards);
      } else {
        CheckRows(shards, RowBlocks(type_, rows, ranks.count, cut_));
      }
      CheckRanks(shards, ranks.first);
    }
    const int first_count = HostOf(At(order_.front()).rank).count;
    if (on_host && ranks.count != first_count) {
      Add(shards.front(), "rank",
          "must be on a host of {} ranks, as the first block is, got one of {}", first_count,
          ranks.count);
    }
  }

  void CheckSubset(Indices shards) {
    if (shards.size() < 2) {
      violations_.Add(path_ + ".shards", "row_wise_subset must have at least two shards, got 1");
      return;
    }
    for (std::size_t i = 1; i < shards.size(); ++i) {
      const int previous = At(shards[i - 1]).rank;
      if (At(shards[i]).rank <= previous) {
        Add(shards[i], "rank", "must be above {}, the rank of the rows before, got {}", previous,
            At(shards[i]).rank);
      }
    }
    CheckRows(shards,
              RowBlocks(type_, table_.num_embeddings, static_cast<int>(shards.size()), cut_));
  }

  bool CountIs(Indices shards, int expected, const char* what) {
    if (static_cast<std::int64_t>(shards.size()) == expected) return true;
    violations_.Add(path_ + ".shards", "{} must have {}, {}, got {} at columns [{}, {})",
                    ToText(type_), what, expected, shards.size(), At(shards.front()).col_offset,
                    At(shards.front()).col_offset + At(shards.front()).cols);
    return false;
  }

  void CheckAllRows(Indices shards) {
    for (const std::size_t s : shards) {
      if (At(s).rows != table_.num_embeddings) {
        Add(s, "rows", "must be all {} rows of the table, got {}", table_.num_embeddings,
            At(s).rows);
      }
    }
  }

  void CheckRows(Indices shards, const std::vector<Block>& blocks) {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const Shard& shard = At(shards[i]);
      if (shard.row_offset != blocks[i].offset) {
        Add(shards[i], "row_offset", "must be {}, where {} begins block {} of {}, got {}",
            blocks[i].offset, ToText(type_), i, blocks.size(), shard.row_offset);
      }
      if (shard.rows != blocks[i].size) {
        Add(shards[i], "rows", "must be {}, the rows that {} gives block {} of {}{}, got {}",
            blocks[i].size, ToText(type_), i, blocks.size(), Proportion(), shard.rows);
      }
    }
  }

  std::string Proportion() const {
    if (!IsInProportion(type_, cut_)) return "";
    return fmt::format(" in proportion to {} (row_proportion)", ToText(*cut_.proportion));
  }

  // first, first + 1, ...
  void CheckRanks(Indices shards, int first) {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const int expected = first + static_cast<int>(i);
      if (At(shards[i]).rank != expected) {
        Add(shards[i], "rank", "must be {}, where {} puts block {}, got {}", expected,
            ToText(type_), i, At(shards[i]).rank);
      }
    }
  }

  void CheckOneHost() {
    const HostRanks& host = HostOf(At(order_.front()).rank);
    for (const std::size_t s : order_) {
      if (At(s).rank < host.first || At(s).rank >= host.first + host.count) {
        Add(s, "rank", "must be in [{}, {}), the host of the first shard, got {}", host.first,
            host.first + host.count, At(s).rank);
      }
    }
  }

  const HostRanks& HostOf(int rank) const {
    return *(std::ranges::upper_bound(hosts_, rank, {}, &HostRanks::first) - 1);
  }

  template <typename... Args>
  void Add(std::size_t s, const char* field, fmt::format_string<Args...> text, Args&&... args) {
    violations_.Add(fmt::format("{}.shards[{}].{}", path_, s, field), text,
                    std::forward<Args>(args)...);
  }

  const Table& table_;
  const TablePlan& plan_;
  const ShardingType type_;
  const std::vector<HostRanks>& hosts_;
  const Topology& topology_;
  const RowCut& cut_;
  const int num_ranks_;
  const std::string& path_;
  Violations& violations_;
  std::vector<std::size_t> order_;  // shards in ascending (col_offset, row_offset)
};

}  // namespace

bool CheckShardRange(const Table& table, ShardingType type, const Shard& shard, int num_ranks,
                     ShardPosition position, Violations& violations) {
  const bool rows_ok = CheckRange(shard.row_offset, shard.rows, CutsRows(type) ? 0 : 1,
                                  table.num_embeddings, "row_offset", "rows", position, violations);
  const bool cols_ok = CheckRange(shard.col_offset, shard.cols, 1, table.embedding_dim,
                                  "col_offset", "cols", position, violations);
  const bool rank_ok = shard.rank >= 0 && shard.rank < num_ranks;
  if (!rank_ok) {
    violations.Add(fmt::format("plan.tables[{}].shards[{}].rank", position.table, position.shard),
                   "must be in [0, {}), got {}", num_ranks, shard.rank);
  }
  return rows_ok && cols_ok && rank_ok;
}

void CheckLayout(const Table& table, const TablePlan& plan, const std::vector<HostRanks>& hosts,
                 const Topology& topology, const RowCut& cut, const std::string& path,
                 Violations& violations) {
  LayoutChecker(table, plan, hosts, topology, cut, path, violations).Run();
}

void CheckUnpooledTables(const PlanRequest& request, const Plan& plan,
                         const std::vector<int>& table_of, Violations& violations) {
  // A column_wise table's entry and the width of its first block, by module and embedding_dim.
  std::map<std::pair<std::string_view, std::int64_t>, std::pair<std::size_t, std::int64_t>> first;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (table_of[t] < 0) continue;
    const Table& table = request.tables[static_cast<std::size_t>(table_of[t])];
    const TablePlan& entry = plan.tables[t];
    if (table.kind != TableKind::kEmbedding) continue;
    if (!IsTypeOf(table.kind, entry.sharding_type)) {
      violations.Add(fmt::format("plan.tables[{}].sharding_type", t),
                     "must be table_wise, column_wise or row_wise for an unpooled table (kind "
                     "\"embedding\"), got {}",
                     ToText(entry.sharding_type));
    }
    if (entry.sharding_type != ShardingType::kColumnWise) continue;
    for (std::size_t s = 0; s < entry.shards.size(); ++s) {
      const std::int64_t cols = entry.shards[s].cols;
      const auto [block, is_first] =
          first.try_emplace({table.module, table.embedding_dim}, t, cols);
      const auto& [of, width] = block->second;
      if (is_first || cols == width) continue;
      violations.Add(fmt::format("plan.tables[{}].shards[{}].cols", t, s),
                     "must be {}, as plan.tables[{}] has, since TorchRec runs one block width in "
                     "an EmbeddingCollection, got {}",
                     width, of, cols);
    }
  }
}

}  // namespace neuroshard
