#include "client/sweep/comm_sampling.h"

#include <algorithm>
#include <functional>
#include <numeric>
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

// What the placement's columns would be if they were spread evenly, in whole vectors: the other
// collectives then move about as much as the all-to-alls do.
std::int64_t EvenColumns(const std::vector<std::int64_t>& dim_sums) {
  constexpr std::int64_t kStep = 4;
  const auto num_ranks = static_cast<std::int64_t>(dim_sums.size());
  const std::int64_t total = std::accumulate(dim_sums.begin(), dim_sums.end(), std::int64_t{0});
  return (total + num_ranks * kStep - 1) / (num_ranks * kStep) * kStep;
}

// Every other one, on average, with start offsets: in training such a collective follows lookups
// that do not end together, or another collective.
CommSample OtherCollective(const CommSweepConfig& config, const CommSample& all_to_all,
                           Collective collective, Random& random) {
  CommSample sample = all_to_all;
  sample.collective = collective;
  sample.direction =
      collective == Collective::kReduceScatter ? CommDirection::kForward : CommDirection::kBackward;
  sample.dim_sums.assign(all_to_all.dim_sums.size(), EvenColumns(all_to_all.dim_sums));
  sample.start_offsets_ms =
      DrawStartOffsets(config, static_cast<int>(sample.dim_sums.size()), random);
  if (random.Below(2) == 0) sample.start_offsets_ms.clear();
  return sample;
}

// Behind the placement's number in a sample's id.
char Letter(const CommSample& sample) {
  switch (sample.collective) {
    case Collective::kReduceScatter:
      return 'r';
    case Collective::kAllGather:
      return 'g';
    case Collective::kAllReduce:
      return 'a';
    case Collective::kAllToAll:
      break;
  }
  return sample.direction == CommDirection::kForward ? 'f' : 'b';
}

}  // namespace

std::vector<CommSample> MakeCommSamples(const CommSweepConfig& config) {
  std::vector<CommSample> samples;
  std::uint64_t index = 0;
  for (const int num_ranks : config.num_ranks) {
    for (int i = 0; i < config.num_samples; ++i, ++index) {
      Random random(SampleSeed(config.seed, index));
      CommSample backward;
      backward.direction = CommDirection::kBackward;
      backward.dim_sums = DrawDimSums(config, num_ranks, random);
      CommSample forward = backward;
      forward.direction = CommDirection::kForward;
      forward.start_offsets_ms = DrawStartOffsets(config, num_ranks, random);
      // Drawn after the placement and its offsets, which are those of a sweep with one batch size
      // and all-to-alls only.
      backward.batch_size = config.batch_sizes[random.Below(config.batch_sizes.size())];
      forward.batch_size = backward.batch_size;
      std::vector<CommSample> all = {backward, forward};
      // All are drawn, so that none depends on which others are listed.
      for (const Collective collective :
           {Collective::kReduceScatter, Collective::kAllGather, Collective::kAllReduce}) {
        all.push_back(OtherCollective(config, backward, collective, random));
      }
      for (CommSample& sample : all) {
        if (std::find(config.collectives.begin(), config.collectives.end(), sample.collective) ==
            config.collectives.end()) {
          continue;
        }
        sample.sample_id = fmt::format("m{:06}{}", index, Letter(sample));
        samples.push_back(std::move(sample));
      }
    }
  }
  return InPasses(std::move(samples), config.repeats);
}

}  // namespace neuroshard
