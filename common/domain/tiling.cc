#include "common/domain/tiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "common/base/positions.h"
#include "common/domain/shard_layout.h"

namespace neuroshard {
namespace {

// Whether several shards may have the same columns.
bool SharesColumns(ShardingType type) {
  return CutsRows(type) || type == ShardingType::kDataParallel;
}

class TilingChecker {
 public:
  TilingChecker(const TablePlan& plan, int ranks, const std::string& path, Violations& violations)
      : plan_(plan),
        type_(plan.sharding_type),
        ranks_(ranks),
        path_(path),
        violations_(violations) {}

  void Run() {
    if (plan_.shards.empty()) {
      AddToShards("must hold at least one shard, got none");
      return;
    }
    if (!NoneIsEmpty()) return;
    for (const Shard& shard : plan_.shards) {
      rows_ = std::max(rows_, shard.row_offset + shard.rows);
      cols_ = std::max(cols_, shard.col_offset + shard.cols);
    }
    if (type_ == ShardingType::kTableWise && plan_.shards.size() != 1) {
      AddToShards(
          fmt::format("table_wise must have exactly one shard, got {}", plan_.shards.size()));
    }
    CheckColumnTiling(plan_, TilingOrder(plan_.shards), cols_, path_, violations_,
                      [this](Positions shards) { CheckBlock(shards); });
  }

 private:
  using Positions = std::span<const std::size_t>;

  const Shard& At(std::size_t s) const { return plan_.shards[s]; }

  bool NoneIsEmpty() {
    bool none = true;
    for (std::size_t s = 0; s < plan_.shards.size(); ++s) {
      if (At(s).cols == 0) Add(s, "cols", "must be 1 or more, got 0");
      const bool no_rows = At(s).rows == 0 && !CutsRows(type_);
      if (no_rows) {
        Add(s, "rows", fmt::format("must be 1 or more in {}, got 0", ToText(type_)));
      }
      none = none && At(s).cols > 0 && !no_rows;
    }
    return none;
  }

  void CheckBlock(Positions shards) {
    for (const std::size_t s : shards) {
      const bool whole = At(s).col_offset == 0 && At(s).cols == cols_;
      if (!CutsColumns(type_) && type_ != ShardingType::kTableWise && !whole) {
        Add(s, "cols",
            fmt::format("must be all {} columns of the table in {}, got {}", cols_, ToText(type_),
                        At(s).cols));
      } else if (At(s).cols != At(shards.front()).cols) {
        Add(s, "cols",
            fmt::format("must be {} as in the first shard at these columns, got {}",
                        At(shards.front()).cols, At(s).cols));
      }
    }
    CheckNumber(shards.size());
    if (SharesColumns(type_)) CheckRanks(shards);
    if (CutsRows(type_)) {
      CheckRows(shards);
      return;
    }
    for (const std::size_t s : shards) {
      if (At(s).rows == rows_) continue;
      Add(s, "rows",
          fmt::format("must be all {} rows of the table in {}, got {}", rows_, ToText(type_),
                      At(s).rows));
    }
  }

  void CheckNumber(std::size_t shards) {
    const bool everywhere = type_ == ShardingType::kRowWise || type_ == ShardingType::kDataParallel;
    if (everywhere && ranks_ > 0 && shards != static_cast<std::size_t>(ranks_)) {
      AddToShards(fmt::format("{} must have one shard for each of {} ranks (world_size), got {}",
                              ToText(type_), ranks_, shards));
    }
    if (type_ == ShardingType::kRowWiseSubset && shards < 2) {
      AddToShards("row_wise_subset must have at least two shards, got 1");
    }
  }

  void CheckRanks(Positions shards) {
    std::map<int, std::size_t> first_on;  // by rank
    for (const std::size_t s : shards) {
      if (At(s).rows == 0) continue;
      const auto [first, is_new] = first_on.emplace(At(s).rank, s);
      if (is_new) continue;
      Add(s, "rank",
          fmt::format("must not be {}, where shards[{}] has the same columns", At(s).rank,
                      first->second));
    }
  }

  // They ascend by row_offset.
  void CheckRows(Positions shards) {
    std::int64_t covered = 0;
    for (const std::size_t s : shards) {
      const Shard& shard = At(s);
      if (shard.rows == 0) continue;
      if (shard.row_offset > covered) {
        AddRowGap(covered, shard);
      } else if (shard.row_offset < covered) {
        Add(s, "row_offset",
            fmt::format("rows [{}, {}) are in another shard too", shard.row_offset,
                        std::min(covered, shard.row_offset + shard.rows)));
      }
      covered = std::max(covered, shard.row_offset + shard.rows);
    }
    if (covered < rows_) {
      Shard end = At(shards.front());
      end.row_offset = rows_;
      AddRowGap(covered, end);
    }
  }

  void AddRowGap(std::int64_t begin, const Shard& next) {
    AddToShards(fmt::format("rows [{}, {}) of '{}' are in no shard at columns [{}, {})", begin,
                            next.row_offset, plan_.name, next.col_offset,
                            next.col_offset + next.cols));
  }

  void AddToShards(std::string description) {
    violations_.Add(path_ + ".shards", std::move(description));
  }
  void Add(std::size_t s, const char* field, std::string description) {
    violations_.Add(fmt::format("{}.shards[{}].{}", path_, s, field), std::move(description));
  }

  const TablePlan& plan_;
  const ShardingType type_;
  const int ranks_;
  const std::string& path_;
  Violations& violations_;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
};

}  // namespace

std::vector<std::size_t> TilingOrder(std::span<const Shard> shards) {
  std::vector<std::size_t> order = Positions(shards.size());
  std::ranges::stable_sort(order, {}, [&](std::size_t s) {
    return std::tie(shards[s].col_offset, shards[s].row_offset);
  });
  return order;
}

void CheckColumnTiling(const TablePlan& plan, std::span<const std::size_t> order, std::int64_t cols,
                       const std::string& path, Violations& violations,
                       const std::function<void(std::span<const std::size_t>)>& on_block) {
  const auto at = [&](std::size_t i) -> const Shard& { return plan.shards[order[i]]; };
  const auto add_gap = [&](std::int64_t begin, std::int64_t end) {
    violations.Add(path + ".shards", "columns [{}, {}) of '{}' are in no shard", begin, end,
                   plan.name);
  };
  std::int64_t covered = 0;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    const Shard& first = at(begin);
    while (SharesColumns(plan.sharding_type) && end < order.size() &&
           at(end).col_offset == first.col_offset) {
      ++end;
    }
    if (first.col_offset > covered) {
      add_gap(covered, first.col_offset);
    } else if (first.col_offset < covered) {
      violations.Add(fmt::format("{}.shards[{}].col_offset", path, order[begin]),
                     "columns [{}, {}) are in another shard too", first.col_offset,
                     std::min(covered, first.col_offset + first.cols));
    }
    covered = std::max(covered, first.col_offset + first.cols);
    on_block(order.subspan(begin, end - begin));
    begin = end;
  }
  if (covered < cols) add_gap(covered, cols);
}

void CheckTiling(const TablePlan& plan, int ranks, const std::string& path,
                 Violations& violations) {
  TilingChecker(plan, ranks, path, violations).Run();
}

}  // namespace neuroshard
