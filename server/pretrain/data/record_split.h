// Split of measurements into training, validation and test samples, with tables that no training
// sample has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/store/profile_store.h"
#include "server/pretrain/data/training_problem.h"

namespace neuroshard {

// Returns a text of what was measured and under which conditions, the same for repeats of a sample,
// whatever their ids. It does not have everything that tells samples apart.
std::string ContentOf(const ComputeRecord& record);
std::string ContentOf(const CommRecord& record);

// Split of compute records, by position.
struct ComputeSplit {
  SampleSplit samples;
  // Samples with held-out tables: never learned from.
  std::vector<std::int64_t> unseen_tables;
  std::int64_t held_out_tables = 0;
  std::int64_t tables = 0;
};

// Holds out `table_share` of the tables by a hash of seed and table, except tables with which more
// than a fifth of the samples would have held-out ones: with eight tables per sample, 2% of the
// tables are in 15% of the samples. A measured table is identified by its name, an imported one by
// its statistics without the columns. The other samples are split 80/10/10 by a hash of seed and
// content, so that a sample keeps its part when a store grows; small stores are cut in the order of
// the hashes, so that no part is empty.
ComputeSplit SplitCompute(std::span<const ComputeRecord> records, double table_share,
                          std::uint64_t seed);

// Splits collectives 80/10/10 in the same way.
SampleSplit SplitComm(std::span<const CommRecord> records, std::uint64_t seed);

}  // namespace neuroshard
