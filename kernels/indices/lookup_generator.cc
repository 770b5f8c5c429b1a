#include "kernels/indices/lookup_generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/random.h"
#include "kernels/indices/reuse_counts.h"
#include "kernels/indices/row_permutation.h"
#include "kernels/indices/zipf_distribution.h"

namespace neuroshard {
namespace {

// Beyond any memory that a batch could be generated in; keeps the arithmetic far from overflow.
constexpr double kMaxLookups = 0x1p40;

Status Check(const LookupSpec& spec) {
  if (spec.rows < 1 || spec.rows > (std::int64_t{1} << 62)) {
    return InvalidArgument("rows: must be in [1, 2^62], got {}", spec.rows);
  }
  if (spec.batch_size < 1) {
    return InvalidArgument("batch_size: must be at least 1, got {}", spec.batch_size);
  }
  if (!std::isfinite(spec.pooling_factor) || spec.pooling_factor < 0) {
    return InvalidArgument("pooling_factor: must be finite and not negative, got {}",
                           spec.pooling_factor);
  }
  if (static_cast<double>(spec.batch_size) * spec.pooling_factor > kMaxLookups) {
    return InvalidArgument("pooling_factor: {} ids for each of {} samples are more than 2^40",
                           spec.pooling_factor, spec.batch_size);
  }
  return absl::OkStatus();
}

// Samples get the mean rounded down; as many random ones as are needed get one id more.
std::vector<std::int64_t> ChooseOffsets(std::int64_t batch_size, std::int64_t lookups,
                                        Random& random) {
  std::vector<std::int64_t> offsets(batch_size + 1, 0);
  std::int64_t longer = lookups % batch_size;
  for (std::int64_t sample = 0; sample < batch_size; ++sample) {
    const bool one_more = random.Below(static_cast<std::uint64_t>(batch_size - sample)) <
                          static_cast<std::uint64_t>(longer);
    longer -= one_more;
    offsets[sample + 1] = offsets[sample] + lookups / batch_size + one_more;
  }
  return offsets;
}

LookupBatch Assemble(const LookupSpec& spec, std::vector<std::int64_t> ids, Random& random) {
  LookupBatch batch;
  batch.offsets = ChooseOffsets(spec.batch_size, static_cast<std::int64_t>(ids.size()), random);
  batch.ids = std::move(ids);
  if (spec.weighted) {
    batch.weights.resize(batch.ids.size());
    for (float& weight : batch.weights) weight = static_cast<float>(0.5 + random.UniformReal());
  }
  return batch;
}

}  // namespace

std::int64_t NumLookups(std::int64_t batch_size, double pooling_factor) {
  return std::llround(static_cast<double>(batch_size) * pooling_factor);
}

StatusOr<LookupBatch> GenerateLookups(const LookupSpec& spec, const ReuseHistogram& histogram) {
  NS_RETURN_IF_ERROR(Check(spec));
  for (int bin = 0; bin < kReuseBins; ++bin) {
    if (!std::isfinite(histogram[bin]) || histogram[bin] < 0) {
      return InvalidArgument("reuse_histogram[{}]: must be finite and not negative, got {}", bin,
                             histogram[bin]);
    }
  }
  const std::int64_t lookups = NumLookups(spec.batch_size, spec.pooling_factor);
  Random random(spec.seed);
  std::vector<std::int64_t> ids;
  if (lookups > 0) {
    const double sum = std::accumulate(histogram.begin(), histogram.end(), 0.0);
    if (!(sum > 0) || !std::isfinite(sum)) {
      return InvalidArgument("reuse_histogram: sums up to {}, but {} ids are to be looked up", sum,
                             lookups);
    }
    const RowPermutation row_order(spec.rows, random.Next());
    ids.reserve(lookups);
    std::int64_t next = 0;
    for (const ReuseCount& group : ChooseReuseCounts(histogram, lookups, spec.rows)) {
      for (std::int64_t i = 0; i < group.ids; ++i) {
        ids.insert(ids.end(), static_cast<std::size_t>(group.count), row_order(next++));
      }
    }
    random.Shuffle(ids);
  }
  return Assemble(spec, std::move(ids), random);
}

StatusOr<LookupBatch> GenerateZipfLookups(const LookupSpec& spec, double exponent) {
  NS_RETURN_IF_ERROR(Check(spec));
  if (!std::isfinite(exponent) || exponent < 0) {
    return InvalidArgument("exponent: must be finite and not negative, got {}", exponent);
  }
  Random random(spec.seed);
  const RowPermutation row_order(spec.rows, random.Next());
  const ZipfDistribution rank(spec.rows, exponent);
  std::vector<std::int64_t> ids(NumLookups(spec.batch_size, spec.pooling_factor));
  for (std::int64_t& id : ids) id = row_order(rank(random));
  return Assemble(spec, std::move(ids), random);
}

}  // namespace neuroshard
