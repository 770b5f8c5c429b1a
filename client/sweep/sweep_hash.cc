#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

#include "client/sweep/sweep_config.h"
#include "common/base/sha256.h"

namespace neuroshard {
namespace {

std::string Canonical(const std::vector<std::int64_t>& batch_sizes) {
  return batch_sizes.size() == 1 ? fmt::format("batch_size={}", batch_sizes.front())
                                 : fmt::format("batch_sizes={}", batch_sizes);
}

std::string Canonical(const std::vector<Optimizer>& optimizers) {
  return optimizers.size() == 1 ? fmt::format("optimizer={}", ToText(optimizers.front()))
                                : fmt::format("optimizers={}", ToTexts(optimizers));
}

std::string Canonical(const ComputeSweepConfig& config) {
  const ComputeConditions& conditions = config.conditions;
  std::string text = fmt::format(
      "kind=compute seed={} num_samples={} repeats={} dims={} min_tables={} max_tables={} "
      "max_weights_bytes={} {} {} {}",
      config.seed, config.num_samples, config.repeats, config.dims, config.min_tables,
      config.max_tables, config.max_weights_bytes, Canonical(conditions.batch_sizes),
      Canonical(conditions.optimizers), DescribeSettings(config.settings));
  const ComputeSweepConfig defaults;
  if (conditions.weighted_share != defaults.conditions.weighted_share) {
    text += fmt::format(" weighted={}", conditions.weighted_share);
  }
  if (conditions.pooling_modes != defaults.conditions.pooling_modes) {
    text += fmt::format(" pooling_modes={}", ToTexts(conditions.pooling_modes));
  }
  if (conditions.weight_dtypes != defaults.conditions.weight_dtypes) {
    text += fmt::format(" weight_dtypes={}", ToTexts(conditions.weight_dtypes));
  }
  if (conditions.compute_kernels != defaults.conditions.compute_kernels) {
    text += fmt::format(" compute_kernels={} cache_load_factors={}",
                        ToTexts(conditions.compute_kernels), conditions.cache_load_factors);
  }
  if (config.row_shares != defaults.row_shares) {
    text += fmt::format(" row_shares={}", config.row_shares);
  }
  if (config.active_candidates != 0) {
    text += fmt::format(" active_candidates={}", config.active_candidates);
  }
  return text;
}

std::string Canonical(const CommSweepConfig& config) {
  std::string text = fmt::format(
      "kind=comm seed={} num_samples={} repeats={} num_ranks={} {} dims={} min_tables={} "
      "max_tables={} min_random_placement={} max_random_placement={} max_start_offset={} "
      "start_offset_unit_ms={} {}",
      config.seed, config.num_samples, config.repeats, config.num_ranks,
      Canonical(config.batch_sizes), config.dims, config.min_tables, config.max_tables,
      config.min_random_placement, config.max_random_placement, config.max_start_offset,
      config.start_offset_unit_ms, DescribeSettings(config.settings));
  if (config.collectives != CommSweepConfig().collectives) {
    text += fmt::format(" collectives={}", ToTexts(config.collectives));
  }
  if (config.wire_dtypes != CommSweepConfig().wire_dtypes) {
    text += fmt::format(" wire_dtypes={}", ToTexts(config.wire_dtypes));
  }
  if (config.input_dist) {
    text += fmt::format(" input_dist pooling_factors={} weighted={}",
                        config.input_dist->pooling_factors, config.input_dist->weighted_share);
  }
  if (config.cadence != CommSweepConfig().cadence) {
    text += fmt::format(" cadence={}", ToText(config.cadence));
  }
  return text;
}

}  // namespace

std::string CanonicalText(const SweepConfig& config) {
  return std::visit([](const auto& kind) { return Canonical(kind); }, config);
}

std::string SweepHash(const SweepConfig& config, std::string_view tables_csv) {
  std::string text = CanonicalText(config);
  text += '\n';
  text += tables_csv;
  return Sha256Hex(text);
}

}  // namespace neuroshard
