#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>

#include "server/cost/interval_rule.h"
#include "server/pretrain/data/record_split.h"
#include "server/pretrain/data/universal_problem.h"
#include "server/pretrain/train/input_dist_fit.h"
#include "server/pretrain/train/universal_training.h"

namespace neuroshard {
namespace {

constexpr double kCoverage = 0.9;
constexpr double kLeastNoise = 1e-3;

struct Samples {
  std::vector<int> num_ranks;
  std::vector<InputDistObservation> observations;
};

double PredictInputDist(const MeasuredInputDist& measured, const Samples& samples,
                        std::int64_t at) {
  const auto i = static_cast<std::size_t>(at);
  const InputDistRates rates = measured.At(samples.num_ranks[i], 1).value();
  return rates.fixed_ms + rates.Ms(samples.observations[i].bytes);
}

// Rates of every number of ranks with enough samples to learn from.
MeasuredInputDist Fit(const Samples& samples, const std::vector<std::int64_t>& train,
                      std::int64_t least) {
  std::map<int, std::vector<InputDistObservation>> by_ranks;
  for (const std::int64_t at : train) {
    const auto i = static_cast<std::size_t>(at);
    by_ranks[samples.num_ranks[i]].push_back(samples.observations[i]);
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
    const auto place = std::lower_bound(
        measured.rates.begin(), measured.rates.end(), rates.num_ranks,
        [](const InputDistRates& other, int ranks) { return other.num_ranks < ranks; });
    if (place != measured.rates.end() && place->num_ranks == rates.num_ranks) continue;
    measured.rates.insert(place, rates);
    measured.max_hosts = std::max(measured.max_hosts, before.max_hosts);
  }
}

// Holds so many of the samples by the distance of logarithms, whatever they cost.
IntervalManifest CalibrateInputDist(const MeasuredInputDist& measured, const Samples& samples,
                                    const std::vector<std::int64_t>& calibration) {
  std::vector<double> distances;
  for (const std::int64_t at : calibration) {
    const double ms = samples.observations[static_cast<std::size_t>(at)].ms;
    distances.push_back(std::abs(std::log(ms / PredictInputDist(measured, samples, at))));
  }
  std::sort(distances.begin(), distances.end());
  const double place = kCoverage * static_cast<double>(distances.size() + 1);
  const std::size_t held = std::min(distances.size(), static_cast<std::size_t>(std::ceil(place)));
  IntervalManifest interval;
  interval.coverage = kCoverage;
  interval.noise_cost_ms = {1};
  interval.noise = {std::max(kLeastNoise, held == 0 ? 1 : distances[held - 1])};
  return interval;
}

NetworkReport ReportOf(const InputDistManifest& manifest, const Samples& samples,
                       const std::vector<std::int64_t>& held_out) {
  NetworkReport report;
  const IntervalRule rule(*manifest.interval);
  std::int64_t covered = 0;
  for (const std::int64_t at : held_out) {
    const double said = PredictInputDist(manifest.measured, samples, at);
    const double ms = samples.observations[static_cast<std::size_t>(at)].ms;
    const CostInterval interval = rule.Around(said, rule.Noise(said));
    covered += ms >= interval.low_ms && ms <= interval.high_ms;
    report.predicted_ms.push_back(said);
    report.measured_ms.push_back(ms);
  }
  report.held_out = MeasureRegression(report.predicted_ms, report.measured_ms);
  if (!held_out.empty()) {
    report.coverage = static_cast<double>(covered) / static_cast<double>(held_out.size());
  }
  return report;
}

}  // namespace

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
    if (std::none_of(manifest.measured.rates.begin(), manifest.measured.rates.end(), learned)) {
      continue;
    }
    manifest.measured.max_hosts =
        std::max(manifest.measured.max_hosts, static_cast<int>(HostsOf(record).size()));
  }
  if (const auto& before = outcome.manifest.input_dist) {
    KeepUnmeasuredCounts(before->measured, manifest.measured);
  }
  const auto unknown = [&](std::int64_t at) {
    return !manifest.measured.At(samples.num_ranks[static_cast<std::size_t>(at)], 1).has_value();
  };
  for (auto* part : {&split.train, &split.validation, &split.test}) std::erase_if(*part, unknown);
  // Four rates of hundreds of samples hardly know any of them, so those count as well.
  std::vector<std::int64_t> calibration = split.train;
  calibration.insert(calibration.end(), split.validation.begin(), split.validation.end());
  manifest.interval = CalibrateInputDist(manifest.measured, samples, calibration);

  const auto add = [&](const std::string& name, const std::string& key, bool is_part, int ranks) {
    const auto those = [&](std::vector<std::int64_t> part) {
      std::erase_if(part, [&](std::int64_t at) {
        return ranks != 0 && samples.num_ranks[static_cast<std::size_t>(at)] != ranks;
      });
      return part;
    };
    NetworkReport report = ReportOf(manifest, samples, those(split.test));
    report.name = name;
    report.key = key;
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

}  // namespace neuroshard
