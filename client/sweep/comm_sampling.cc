#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "client/sweep/sampling.h"
#include "client/sweep/sweep_config.h"
#include "common/base/random.h"

namespace neuroshard {
namespace {

// A weight for each of as many tables as were drawn, the largest first.
template <typename Weight>
std::vector<Weight> DrawTables(const CommSweepConfig& config, const std::vector<Weight>& weights,
                               Random& random) {
  std::vector<Weight> tables;
  for (std::int64_t left = random.Between(config.min_tables, config.max_tables); left > 0; --left) {
    tables.push_back(weights[random.Below(weights.size())]);
  }
  std::ranges::sort(tables, std::greater<>());
  return tables;
}

double DrawRandomPlacement(const CommSweepConfig& config, Random& random) {
  return config.min_random_placement +
         random.UniformReal() * (config.max_random_placement - config.min_random_placement);
}

// The least loaded rank or, with the probability, any.
template <typename Load>
std::size_t DrawRank(const std::vector<Load>& loads, double random_placement, Random& random) {
  if (random.UniformReal() < random_placement) return random.Below(loads.size());
  return static_cast<std::size_t>(std::ranges::min_element(loads) - loads.begin());
}

std::vector<std::int64_t> DrawDimSums(const CommSweepConfig& config, int num_ranks,
                                      Random& random) {
  const std::vector<std::int64_t> dims = DrawTables(config, config.dims, random);
  const double random_placement = DrawRandomPlacement(config, random);
  std::vector<std::int64_t> dim_sums(static_cast<std::size_t>(num_ranks), 0);
  for (const std::int64_t dim : dims) dim_sums[DrawRank(dim_sums, random_placement, random)] += dim;
  return dim_sums;
}

// All tables whole, all cut, or some of each: a third of the samples each.
double DrawCutShare(Random& random) {
  const std::uint64_t third = random.Below(3);
  return third == 2 ? random.UniformReal() : static_cast<double>(third);
}

CommSample DrawInputDist(const CommSweepConfig& config, int num_ranks, Random& random) {
  CommSample sample;
  sample.dim_sums.resize(static_cast<std::size_t>(num_ranks), 0);
  InputDistSample input;
  input.whole_features.resize(sample.dim_sums.size(), 0);
  input.whole_ids.resize(sample.dim_sums.size(), 0);
  const std::vector<double> tables = DrawTables(config, config.input_dist->pooling_factors, random);
  const double random_placement = DrawRandomPlacement(config, random);
  const double cut_share = DrawCutShare(random);
  for (const double ids : tables) {
    if (random.UniformReal() < cut_share) {
      ++input.cut_features;
      input.cut_ids += ids;
      continue;
    }
    const std::size_t rank = DrawRank(input.whole_ids, random_placement, random);
    ++input.whole_features[rank];
    input.whole_ids[rank] += ids;
  }
  input.weighted = random.UniformReal() < config.input_dist->weighted_share;
  input.seed = random.Next();
  sample.input_dist = std::move(input);
  sample.batch_size = config.batch_sizes[random.Below(config.batch_sizes.size())];
  return sample;
}

std::vector<double> DrawStartOffsets(const CommSweepConfig& config, int num_ranks, Random& random) {
  const std::int64_t bound = random.Between(1, config.max_start_offset - 1);
  std::vector<std::int64_t> steps;
  for (int rank = 0; rank < num_ranks; ++rank) steps.push_back(random.Between(0, bound - 1));
  const std::int64_t first = *std::ranges::min_element(steps);
  return Mapped<double>(steps, [&](const std::int64_t step) {
    return static_cast<double>(step - first) * config.start_offset_unit_ms;
  });
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
      if (config.input_dist) {
        samples.push_back(DrawInputDist(config, num_ranks, random));
        samples.back().sample_id = fmt::format("m{:06}i", index);
        continue;
      }
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
      // Drawn last: placements are the same whatever the list.
      const DataType wire_dtype = config.wire_dtypes[random.Below(config.wire_dtypes.size())];
      for (CommSample& sample : all) {
        if (sample.collective == Collective::kAllToAll && wire_dtype != DataType::kFp32) {
          sample.wire_dtype = wire_dtype;
          sample.element_bytes = ElementBits(wire_dtype) / 8;
        }
        if (std::ranges::find(config.collectives, sample.collective) == config.collectives.end()) {
          continue;
        }
        sample.sample_id = fmt::format("m{:06}{}", index, Letter(sample));
        samples.push_back(std::move(sample));
      }
    }
  }
  for (CommSample& sample : samples) {
    sample.cadence = config.cadence;
    if (config.cadence != Cadence::kBarrier) sample.start_offsets_ms.clear();
  }
  return InPasses(std::move(samples), config.repeats);
}

}  // namespace neuroshard
