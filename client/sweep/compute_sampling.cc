#include "client/sweep/compute_sampling.h"

#include <algorithm>
#include <set>
#include <utility>

#include "client/sweep/repeated_passes.h"
#include "client/sweep/sample_seed.h"
#include "common/base/random.h"

namespace neuroshard {
namespace {

// Draws of one table before its sample is taken as full: a table that fits is missed with a chance
// that no longer matters.
constexpr int kTableDraws = 200;
// Whole samples that came out below min_tables before the limits are called impossible.
constexpr int kSampleDraws = 1000;
constexpr std::int64_t kFp32Bytes = 4;

struct AugmentedTable {
  std::size_t table = 0;
  std::int64_t dim = 0;
  std::int64_t weights_bytes = 0;
};

// Only those that fit alone.
std::vector<AugmentedTable> Augment(const ComputeSweepConfig& config,
                                    const std::vector<Table>& tables) {
  std::vector<AugmentedTable> augmented;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    for (const std::int64_t dim : config.dims) {
      // Compared by division: rows x dim x 4 of a hostile table may overflow.
      if (tables[t].num_embeddings > config.max_weights_bytes / (dim * kFp32Bytes)) continue;
      augmented.push_back({t, dim, tables[t].num_embeddings * dim * kFp32Bytes});
    }
  }
  return augmented;
}

std::vector<std::size_t> DrawTables(const ComputeSweepConfig& config,
                                    const std::vector<AugmentedTable>& augmented, Random& random) {
  const auto wanted =
      static_cast<std::size_t>(random.Between(config.min_tables, config.max_tables));
  std::vector<std::size_t> chosen;
  std::set<std::size_t> taken;
  std::int64_t free_bytes = config.max_weights_bytes;
  while (chosen.size() < std::min(wanted, augmented.size())) {
    bool found = false;
    for (int draw = 0; draw < kTableDraws && !found; ++draw) {
      const std::size_t candidate = random.Below(augmented.size());
      if (augmented[candidate].weights_bytes > free_bytes || !taken.insert(candidate).second)
        continue;
      chosen.push_back(candidate);
      free_bytes -= augmented[candidate].weights_bytes;
      found = true;
    }
    if (!found) break;
  }
  return chosen;
}

MeasuredShard WholeTable(const Table& table, std::int64_t dim) {
  MeasuredShard shard;
  shard.table = table.name;
  shard.rows = table.num_embeddings;
  shard.cols = dim;
  shard.pooling_factor = table.pooling_factor;
  shard.reuse_histogram = table.reuse_histogram;
  return shard;
}

}  // namespace

StatusOr<std::vector<ComputeSample>> MakeComputeSamples(const ComputeSweepConfig& config,
                                                        const std::vector<Table>& tables) {
  const std::vector<AugmentedTable> augmented = Augment(config, tables);
  if (augmented.size() < static_cast<std::size_t>(config.min_tables)) {
    return InvalidArgument(
        "max_weights_bytes: {} leaves {} of {} augmented tables, fewer than min_tables {}",
        config.max_weights_bytes, augmented.size(), tables.size() * config.dims.size(),
        config.min_tables);
  }
  std::vector<ComputeSample> samples;
  for (int i = 0; i < config.num_samples; ++i) {
    Random random(SampleSeed(config.seed, static_cast<std::uint64_t>(i)));
    std::vector<std::size_t> chosen;
    for (int draw = 0;
         draw < kSampleDraws && chosen.size() < static_cast<std::size_t>(config.min_tables);
         ++draw) {
      chosen = DrawTables(config, augmented, random);
    }
    if (chosen.size() < static_cast<std::size_t>(config.min_tables)) {
      return InvalidArgument(
          "max_weights_bytes: no {} tables (min_tables) found that fit {} bytes together",
          config.min_tables, config.max_weights_bytes);
    }
    ComputeSample sample;
    sample.sample_id = fmt::format("c{:06}", i);
    sample.batch_size = config.batch_size;
    sample.optimizer = config.optimizer;
    sample.seed = random.Next();
    for (const std::size_t index : chosen) {
      sample.shards.push_back(WholeTable(tables[augmented[index].table], augmented[index].dim));
    }
    samples.push_back(std::move(sample));
  }
  return InPasses(std::move(samples), config.repeats);
}

}  // namespace neuroshard
