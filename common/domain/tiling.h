// Tilings: whether the shards of a table have every part of it once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/violations.h"
#include "common/domain/plan.h"

namespace neuroshard {

// Positions of the shards in ascending (col_offset, row_offset).
std::vector<std::size_t> TilingOrder(std::span<const Shard> shards);

// Adds a violation, with paths under `path` ("plan.tables[3]"), for columns of [0, cols) that are in
// no shard or in more than one block of columns. Calls on_block for each block, in order: a shard,
// or all at the same column where the type has several there. `order` is TilingOrder's.
void CheckColumnTiling(const TablePlan& plan, std::span<const std::size_t> order, std::int64_t cols,
                       const std::string& path, Violations& violations,
                       const std::function<void(std::span<const std::size_t>)>& on_block);

// Adds a violation for everything that keeps the shards from being a table of its own size, laid out
// in its sharding type over `ranks` ranks (0: not known): no shards, empty ones where the type has
// none, gaps, overlaps, columns or rows that the type does not cut, a number of shards that it
// cannot have, and one rank for two shards of the same columns. Where rows are cut, which ranks are
// on a host and the order of the list do not matter. Offsets and sizes are in [0, 2^62).
void CheckTiling(const TablePlan& plan, int ranks, const std::string& path, Violations& violations);

}  // namespace neuroshard
