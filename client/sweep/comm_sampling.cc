#include "client/sweep/comm_sampling.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "client/sweep/repeated_passes.h"
#include "client/sweep/sample_seed.h"
#include "common/base/random.h"

namespace neuroshard {
namespace {

std::vector<std::int64_t> DrawDimSums(const CommSweepConfig& config, int num_ranks,
                                      Random& random) {
  std::vector<std::int64_t> dims;
  for (std::int64_t left = random.Between(config.min_tables, config.max_tables); left > 0; --left) {
    dims.push_back(config.dims[random.Below(config.dims.size())]);
  }
  std::sort(dims.begin(), dims.end(), std::greater<>());
  const double random_placement =
      config.min_random_placement +
      random.UniformReal() * (config.max_random_placement - config.min_random_placement);
  std::vector<std::int64_t> dim_sums(static_cast<std::size_t>(num_ranks), 0);
  for (const std::int64_t dim : dims) {
    const bool anywhere = random.UniformReal() < random_placement;
    const auto rank =
        anywhere ? dim_sums.begin() + static_cast<std::ptrdiff_t>(random.Below(dim_sums.size()))
                 : std::min_element(dim_sums.begin(), dim_sums.end());
    *rank += dim;
  }
  return dim_sums;
}

std::vector<double> DrawStartOffsets(const CommSweepConfig& config, int num_ranks, Random& random) {
  const std::int64_t bound = random.Between(1, config.max_start_offset - 1);
  std::vector<std::int64_t> steps;
  for (int rank = 0; rank < num_ranks; ++rank) steps.push_back(random.Between(0, bound - 1));
  const std::int64_t first = *std::min_element(steps.begin(), steps.end());
  std::vector<double> offsets_ms;
  for (const std::int64_t step : steps) {
    offsets_ms.push_back(static_cast<double>(step - first) * config.start_offset_unit_ms);
  }
  return offsets_ms;
}

}  // namespace

std::vector<CommSample> MakeCommSamples(const CommSweepConfig& config) {
  std::vector<CommSample> samples;
  std::uint64_t index = 0;
  for (const int num_ranks : config.num_ranks) {
    for (int i = 0; i < config.num_samples; ++i, ++index) {
      Random random(SampleSeed(config.seed, index));
      CommSample backward;
      backward.sample_id = fmt::format("m{:06}b", index);
      backward.direction = CommDirection::kBackward;
      backward.dim_sums = DrawDimSums(config, num_ranks, random);
      CommSample forward = backward;
      forward.sample_id = fmt::format("m{:06}f", index);
      forward.direction = CommDirection::kForward;
      forward.start_offsets_ms = DrawStartOffsets(config, num_ranks, random);
      // Drawn last, so that the placements are those of a sweep with one batch size.
      backward.batch_size = config.batch_sizes[random.Below(config.batch_sizes.size())];
      forward.batch_size = backward.batch_size;
      samples.push_back(std::move(backward));
      samples.push_back(std::move(forward));
    }
  }
  return InPasses(std::move(samples), config.repeats);
}

}  // namespace neuroshard
