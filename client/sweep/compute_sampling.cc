#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "client/sweep/sampling.h"
#include "client/sweep/sweep_config.h"
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
  std::int64_t rows = 0;  // of a block of the table, or all
  std::int64_t weights_bytes = 0;
};

// Rounded up, as row_wise blocks are.
std::int64_t BlockRows(std::int64_t rows, double share) {
  return share == 1.0
             ? rows
             : std::max<std::int64_t>(
                   1, static_cast<std::int64_t>(std::ceil(static_cast<double>(rows) * share)));
}

// The variants of all tables, but those that do not fit alone.
std::vector<AugmentedTable> Augment(const ComputeSweepConfig& config,
                                    const std::vector<Table>& tables) {
  std::vector<AugmentedTable> augmented;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    for (const std::int64_t dim : config.dims) {
      for (const double share : config.row_shares) {
        const std::int64_t rows = BlockRows(tables[t].num_embeddings, share);
        // Compared by division: rows x dim x 4 of a hostile table may overflow.
        if (rows > config.max_weights_bytes / (dim * kFp32Bytes)) continue;
        augmented.push_back({t, dim, rows, rows * dim * kFp32Bytes});
      }
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

// A block of some rows gets the same share of the ids, as a plan's does (client/validate).
MeasuredShard ShardOf(const Table& table, const AugmentedTable& augmented) {
  MeasuredShard shard;
  shard.table = table.name;
  shard.rows = augmented.rows;
  shard.cols = augmented.dim;
  shard.pooling_factor = table.pooling_factor;
  if (augmented.rows != table.num_embeddings) {
    shard.pooling_factor *=
        static_cast<double>(augmented.rows) / static_cast<double>(table.num_embeddings);
  }
  shard.reuse_histogram = table.reuse_histogram;
  return shard;
}

template <typename T>
T DrawOne(const std::vector<T>& values, Random& random) {
  return values[random.Below(values.size())];
}

// The last that is drawn of a sample, so that its tables and seed are those of a sweep without.
void DrawConditions(const ComputeConditions& conditions, Random& random, ComputeSample& sample) {
  sample.batch_size = DrawOne(conditions.batch_sizes, random);
  sample.optimizer = DrawOne(conditions.optimizers, random);
  const bool weighted = random.UniformReal() < conditions.weighted_share;
  const PoolingMode pooling_mode = DrawOne(conditions.pooling_modes, random);
  const DataType weight_dtype = DrawOne(conditions.weight_dtypes, random);
  const ComputeKernel kernel = DrawOne(conditions.compute_kernels, random);
  const double load_factor = kernel == ComputeKernel::kFusedUvmCaching
                                 ? DrawOne(conditions.cache_load_factors, random)
                                 : 0;
  for (MeasuredShard& shard : sample.shards) {
    shard.weighted = weighted && pooling_mode != PoolingMode::kNone;
    shard.pooling_mode = pooling_mode;
    shard.weight_dtype = weight_dtype;
    shard.compute_kernel = kernel;
    shard.cache_load_factor = load_factor;
  }
}

}  // namespace

StatusOr<std::vector<ComputeSample>> MakeComputeSamples(const ComputeSweepConfig& config,
                                                        const std::vector<Table>& tables) {
  const std::vector<AugmentedTable> augmented = Augment(config, tables);
  if (augmented.size() < static_cast<std::size_t>(config.min_tables)) {
    return InvalidArgument(
        "max_weights_bytes: {} leaves {} of {} augmented tables, fewer than min_tables {}",
        config.max_weights_bytes, augmented.size(),
        tables.size() * config.dims.size() * config.row_shares.size(), config.min_tables);
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
    sample.seed = random.Next();
    for (const std::size_t index : chosen) {
      sample.shards.push_back(ShardOf(tables[augmented[index].table], augmented[index]));
    }
    DrawConditions(config.conditions, random, sample);
    samples.push_back(std::move(sample));
  }
  return InPasses(std::move(samples), config.repeats);
}

StatusOr<std::vector<ComputeSample>> MakeCandidates(const ComputeSweepConfig& config,
                                                    const std::vector<Table>& tables) {
  ComputeSweepConfig pool = config;
  pool.num_samples *= config.active_candidates;
  pool.repeats = 1;
  return MakeComputeSamples(pool, tables);
}

}  // namespace neuroshard
