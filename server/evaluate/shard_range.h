// Whether a shard is one at all: the part of legality that pricing needs too.
#pragma once

#include <string>

#include "common/base/violations.h"
#include "common/domain/plan.h"
#include "common/domain/table.h"

namespace neuroshard {

// Adds a violation, under `path`, for every range of `shard` that is empty or leaves `table`, and
// for a rank outside [0, num_ranks). Returns whether there was none. Any int64 values are fine.
bool CheckShardRange(const Table& table, const Shard& shard, int num_ranks, const std::string& path,
                     Violations& violations);

}  // namespace neuroshard
