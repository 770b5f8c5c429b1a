// Split of measurements into training, validation and test samples, with tables that no training
// sample has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/store/profile_store.h"
#include "server/pretrain/data/training_problem.h"

namespace neuroshard {

// Positions of records.
struct ComputeSplit {
  SampleSplit samples;
  // Samples with any of the held-out tables: never learned from.
  std::vector<std::int64_t> unseen_tables;
  std::int64_t held_out_tables = 0;
  std::int64_t tables = 0;
};

// Holds out `table_share` of the tables by a hash of seed and table, but no table that would bring
// the samples that have one of them above a fifth of all: with eight tables a sample, 2% of the
// tables are in 15% of the samples. A measured table is known by its name, an imported one by its
// statistics but for the columns. The rest goes 80/10/10 by a hash of seed and content, so that a
// sample keeps its place when a store grows; small stores are cut by the order of the hashes, so
// that no part is empty.
ComputeSplit SplitCompute(std::span<const ComputeRecord> records, double table_share,
                          std::uint64_t seed);

// 80/10/10 as above.
SampleSplit SplitComm(std::span<const CommRecord> records, std::uint64_t seed);

}  // namespace neuroshard
