// The parts of a training that fit rates, not networks: distributions of ids, and casts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "server/pretrain/data/comm_records.h"
#include "server/pretrain/data/measured_problem.h"
#include "server/pretrain/data/record_split.h"
#include "server/pretrain/train/ensemble.h"
#include "server/pretrain/train/model_training.h"

namespace neuroshard {
namespace {

constexpr double kLeastNoise = 1e-3;

constexpr std::size_t kRates = 4;  // the fixed time, then ns a byte
constexpr double kMsOfNs = 1e-6;
using Row = std::array<double, kRates>;

// Each observation divided by its time: rates fit it where their product with the row is 1.
Row RowOf(const InputDistObservation& observation) {
  const InputDistBytes& bytes = observation.bytes;
  Row row = {1, bytes.whole * kMsOfNs, bytes.cut * kMsOfNs, bytes.lengths * kMsOfNs};
  for (double& value : row) value /= observation.ms;
  return row;
}

// The fit with the rates of `subset` alone, by the normal equations with pivots, of columns scaled
// to length 1; none where these are singular.
std::optional<Row> Solve(std::span<const Row> rows, const std::vector<std::size_t>& subset) {
  const std::size_t n = subset.size();
  std::vector<std::vector<double>> a(n, std::vector<double>(n + 1, 0));
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) a[i][j] += row[subset[i]] * row[subset[j]];
      a[i][n] += row[subset[i]];
    }
  }
  std::vector<double> lengths;
  for (std::size_t i = 0; i < n; ++i) lengths.push_back(std::sqrt(a[i][i]));
  if (*std::ranges::min_element(lengths) <= 0) return std::nullopt;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) a[i][j] /= lengths[i] * lengths[j];
    a[i][n] /= lengths[i];
  }
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t pivot = i;
    for (std::size_t r = i; r < n; ++r) {
      if (std::abs(a[r][i]) > std::abs(a[pivot][i])) pivot = r;
    }
    std::swap(a[i], a[pivot]);
    if (std::abs(a[i][i]) < 1e-12) return std::nullopt;
    for (std::size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = a[r][i] / a[i][i];
      for (std::size_t c = i; c <= n; ++c) a[r][c] -= factor * a[i][c];
    }
  }
  Row rates{};
  for (std::size_t i = 0; i < n; ++i) rates[subset[i]] = a[i][n] / a[i][i] / lengths[i];
  return rates;
}

double ErrorOf(std::span<const Row> rows, const Row& rates) {
  double error = 0;
  for (const Row& row : rows) {
    double said = 0;
    for (std::size_t i = 0; i < kRates; ++i) said += row[i] * rates[i];
    error += (said - 1) * (said - 1);
  }
  return error;
}

struct Samples {
  std::vector<int> num_ranks;
  std::vector<InputDistObservation> observations;
};

EnsemblePredictions Predict(const MeasuredInputDist& measured, const Samples& samples,
                            const std::vector<std::int64_t>& which) {
  EnsemblePredictions said;
  for (const std::int64_t at : which) {
    const InputDistRates rates = measured.At(samples.num_ranks[at], 1).value();
    said.members_ms.push_back({rates.fixed_ms + rates.Ms(samples.observations[at].bytes)});
    said.measured_ms.push_back(samples.observations[at].ms);
  }
  return said;
}

// Rates of every number of ranks with enough samples to learn from.
MeasuredInputDist Fit(const Samples& samples, const std::vector<std::int64_t>& train,
                      std::int64_t least) {
  std::map<int, std::vector<InputDistObservation>> by_ranks;
  for (const std::int64_t at : train) {
    by_ranks[samples.num_ranks[at]].push_back(samples.observations[at]);
  }
  MeasuredInputDist measured;
  for (const auto& [ranks, observations] : by_ranks) {
    if (std::ssize(observations) < least) continue;
    measured.rates.push_back(FitInputDist(ranks, observations));
  }
  return measured;
}

// Numbers of ranks that were measured before and are not now stay as they were.
void KeepUnmeasuredCounts(const MeasuredInputDist& before, MeasuredInputDist& measured) {
  for (const InputDistRates& rates : before.rates) {
    const auto place =
        std::ranges::lower_bound(measured.rates, rates.num_ranks, {}, &InputDistRates::num_ranks);
    if (place != measured.rates.end() && place->num_ranks == rates.num_ranks) continue;
    measured.rates.insert(place, rates);
    measured.max_hosts = std::max(measured.max_hosts, before.max_hosts);
  }
}

// Holds so many of the samples by the distance of logarithms, whatever they cost.
IntervalManifest CalibrateInputDist(const EnsemblePredictions& said) {
  std::vector<double> distances;
  for (std::size_t i = 0; i < said.measured_ms.size(); ++i) {
    distances.push_back(std::abs(std::log(said.measured_ms[i] / said.members_ms[i].front())));
  }
  std::ranges::sort(distances);
  const double place = kIntervalCoverage * static_cast<double>(distances.size() + 1);
  const std::size_t held = std::min(distances.size(), static_cast<std::size_t>(std::ceil(place)));
  IntervalManifest interval;
  interval.coverage = kIntervalCoverage;
  interval.noise_cost_ms = {1};
  interval.noise = {std::max(kLeastNoise, held == 0 ? 1 : distances[held - 1])};
  return interval;
}

constexpr double kNsPerMs = 1e6;
// How many values caches hold is looked for between the first and the last of so many quantiles.
constexpr std::size_t kQuantiles = 50;

double SquaredErrors(const CastRates& rates, std::span<const CastObservation> observations) {
  double sum = 0;
  for (const CastObservation& one : observations) {
    sum += std::pow(rates.Ms(one.values) / one.ms - 1, 2);
  }
  return sum;
}

CastRates OneRate(std::span<const CastObservation> observations) {
  double sum = 0, sum_of_squares = 0;
  for (const CastObservation& one : observations) {
    const double values_per_ns = one.values / (one.ms * kNsPerMs);
    sum += values_per_ns;
    sum_of_squares += values_per_ns * values_per_ns;
  }
  const double rate = sum / sum_of_squares;
  return {rate, 0, rate};
}

// The best two rates where so many values are cached: ns = a values + c max(0, values - cached).
CastRates TwoRates(std::span<const CastObservation> observations, double cached_values) {
  double u1 = 0, w1 = 0, uu = 0, uw = 0, ww = 0;
  for (const CastObservation& one : observations) {
    const double u = one.values / (one.ms * kNsPerMs);
    const double w = std::max(0.0, one.values - cached_values) / (one.ms * kNsPerMs);
    u1 += u;
    w1 += w;
    uu += u * u;
    uw += u * w;
    ww += w * w;
  }
  const double determinant = uu * ww - uw * uw;
  const double a = (u1 * ww - w1 * uw) / determinant;
  const double c = (w1 * uu - u1 * uw) / determinant;
  return {a, cached_values, a + c};
}

// The casts of every rank of these records.
std::vector<CastObservation> Observations(const std::vector<CommRecord>& records,
                                          const std::vector<std::int64_t>& at) {
  std::vector<CastObservation> observations;
  for (const std::int64_t i : at) {
    const CommRecord& record = records[static_cast<std::size_t>(i)];
    for (std::size_t rank = 0; rank < record.cost_ms.size(); ++rank) {
      const double values = CastValues(record.sample, rank);
      if (values > 0) observations.push_back({values, record.cost_ms[rank]});
    }
  }
  return observations;
}

}  // namespace

InputDistRates FitInputDist(int num_ranks, std::span<const InputDistObservation> observations) {
  const std::vector<Row> rows = Mapped(observations, RowOf);
  Row best{};
  double least = std::numeric_limits<double>::infinity();
  for (unsigned mask = 1; mask < 1U << kRates; ++mask) {
    std::vector<std::size_t> subset;
    for (std::size_t i = 0; i < kRates; ++i) {
      if ((mask & (1U << i)) != 0) subset.push_back(i);
    }
    const std::optional<Row> rates = Solve(rows, subset);
    if (!rates || *std::min_element(rates->begin(), rates->end()) < 0) continue;
    const double error = ErrorOf(rows, *rates);
    if (error >= least) continue;
    least = error;
    best = *rates;
  }
  return {num_ranks, best[0], best[1], best[2], best[3]};
}

Status TrainInputDist(const std::vector<CommRecord>& records, const TrainingConfig& config,
                      const FitContext& context, TrainingOutcome& outcome) {
  Samples samples;
  for (const CommRecord& record : records) {
    samples.num_ranks.push_back(static_cast<int>(record.sample.dim_sums.size()));
    samples.observations.push_back(ObservationOf(record));
    if (samples.observations.back().ms > 0) continue;
    return FailedPrecondition("distribution of ids {} took no time", record.sample.sample_id);
  }
  SampleSplit split = SplitComm(records, config.optimization.seed);
  InputDistManifest manifest;
  manifest.measured = Fit(samples, split.train, config.min_samples);
  if (manifest.measured.rates.empty()) {
    context.observer->OnWarning(fmt::format(
        "the distribution of ids stays {}: no number of ranks has the {} samples that are needed",
        outcome.manifest.input_dist ? "as it was" : "a formula", config.min_samples));
    return absl::OkStatus();
  }
  for (const CommRecord& record : records) {
    const auto learned = [&](const InputDistRates& rates) {
      return rates.num_ranks == static_cast<int>(record.sample.dim_sums.size());
    };
    if (std::ranges::none_of(manifest.measured.rates, learned)) continue;
    manifest.measured.max_hosts =
        std::max(manifest.measured.max_hosts, static_cast<int>(HostsOf(record).size()));
  }
  if (const auto& before = outcome.manifest.input_dist) {
    KeepUnmeasuredCounts(before->measured, manifest.measured);
  }
  const auto unknown = [&](std::int64_t at) {
    return !manifest.measured.At(samples.num_ranks[at], 1).has_value();
  };
  for (auto* part : {&split.train, &split.validation, &split.test}) std::erase_if(*part, unknown);
  // Four rates of hundreds of samples hardly know any of them, so those count as well.
  std::vector<std::int64_t> calibration = split.train;
  calibration.insert(calibration.end(), split.validation.begin(), split.validation.end());
  manifest.interval = CalibrateInputDist(Predict(manifest.measured, samples, calibration));

  const auto add = [&](const std::string& name, const std::string& key, bool is_part, int ranks) {
    const auto those = [&](std::vector<std::int64_t> part) {
      std::erase_if(part,
                    [&](std::int64_t at) { return ranks != 0 && samples.num_ranks[at] != ranks; });
      return part;
    };
    const EnsemblePredictions said = Predict(manifest.measured, samples, those(split.test));
    NetworkReport report = ReportOn(name, key, said);
    if (!said.measured_ms.empty()) report.coverage = IntervalCoverage(*manifest.interval, said);
    report.is_part = is_part;
    report.train_samples = std::ssize(those(split.train));
    report.validation_samples = std::ssize(those(split.validation));
    outcome.reports.push_back(std::move(report));
  };
  add("input_dist", "input_dist", false, 0);
  for (const InputDistRates& rates : manifest.measured.rates) {
    if (manifest.measured.rates.size() < 2) break;
    add(fmt::format("input_dist x{}", rates.num_ranks),
        fmt::format("input_dist.ranks_{}", rates.num_ranks), true, rates.num_ranks);
  }
  outcome.manifest.input_dist = std::move(manifest);
  return absl::OkStatus();
}

CastRates FitCasts(std::span<const CastObservation> observations) {
  std::vector<double> values = Mapped<double>(observations, &CastObservation::values);
  std::ranges::sort(values);
  CastRates best = OneRate(observations);
  double least = SquaredErrors(best, observations);
  for (std::size_t q = 1; q < kQuantiles; ++q) {
    const CastRates rates = TwoRates(observations, values[q * (values.size() - 1) / kQuantiles]);
    const bool rise = rates.ns_per_value >= 0 && rates.ns_per_value_beyond > rates.ns_per_value &&
                      std::isfinite(rates.ns_per_value_beyond);
    if (!rise) continue;
    const double errors = SquaredErrors(rates, observations);
    if (errors >= least) continue;
    least = errors;
    best = rates;
  }
  return best;
}

void TrainCasts(const std::vector<CommRecord>& records, const TrainingConfig& config,
                TrainingOutcome& outcome) {
  MeasuredCasts& casts = outcome.manifest.casts;
  for (const auto& [dtype, rates] :
       {std::pair(DataType::kFp16, &casts.fp16), std::pair(DataType::kBf16, &casts.bf16)}) {
    std::vector<CommRecord> of_type = records;
    std::erase_if(of_type, [type = dtype](const CommRecord& record) {
      return record.sample.wire_dtype != type;
    });
    if (std::ssize(of_type) < config.min_samples) continue;
    SampleSplit split = SplitComm(of_type, config.optimization.seed);
    // There is nothing to choose between: validation samples are learned from, too.
    split.train.insert(split.train.end(), split.validation.begin(), split.validation.end());
    const std::vector<CastObservation> learned = Observations(of_type, split.train);
    if (learned.empty()) continue;
    *rates = FitCasts(learned);
    EnsemblePredictions said;
    for (const CastObservation& one : Observations(of_type, split.test)) {
      said.members_ms.push_back({(*rates)->Ms(one.values)});
      said.measured_ms.push_back(one.ms);
    }
    outcome.reports.push_back(ReportOn(fmt::format("casts {}", ToText(dtype)),
                                       fmt::format("casts.{}", ToText(dtype)), said));
    outcome.reports.back().train_samples = std::ssize(split.train);
  }
}

}  // namespace neuroshard
