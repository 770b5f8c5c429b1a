#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "server/pretrain/data/comm_records.h"
#include "server/pretrain/data/record_split.h"
#include "server/pretrain/train/ensemble.h"
#include "server/pretrain/train/model_training.h"

namespace neuroshard {
namespace {

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
