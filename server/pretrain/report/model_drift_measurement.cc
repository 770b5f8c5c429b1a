#include "server/pretrain/report/model_drift_measurement.h"

#include <fmt/chrono.h>
#include <time.h>

#include <algorithm>
#include <ctime>

#include "common/domain/backend_names.h"
#include "server/pretrain/report/model_comparison.h"

namespace neuroshard {
namespace {

// Of ascending values, the nearest one.
double Quantile(const std::vector<double>& sorted, double share) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<std::size_t>(share * last + 0.5)];
}

// Other kernels or collectives than the model's; not where one of the two is not stated.
bool AreOthers(const std::string& model, const std::string& measured) {
  return !model.empty() && !measured.empty() && measured != model;
}

std::int64_t MeasuredAt(const CommRecord& record) {
  std::int64_t at = 0;
  for (const auto& environment : record.environments) {
    at = std::max(at, environment.measured_at_unix_ms);
  }
  return at;
}

}  // namespace

std::vector<StageDrift> MeasureDrift(const CostModel& model, std::vector<ComputeRecord> compute,
                                     std::vector<CommRecord> comm, std::int64_t made_unix_ms) {
  const std::int64_t batch_size = model.info().coverage.global_batch_size;
  const auto says_nothing = [&](std::int64_t measured_at, std::int64_t measured_batch_size) {
    return measured_at <= made_unix_ms || (batch_size > 0 && measured_batch_size != batch_size);
  };
  const MeasuredWith& with = model.info().measured_with;
  std::erase_if(compute, [&](const ComputeRecord& record) {
    return says_nothing(record.environment.measured_at_unix_ms, record.sample.batch_size) ||
           AreOthers(with.backend, record.environment.backend);
  });
  std::erase_if(comm, [&](const CommRecord& record) {
    return says_nothing(MeasuredAt(record), record.sample.batch_size) ||
           AreOthers(with.collective_backend, CollectiveBackendOf(record.environments.front()));
  });
  std::vector<StageDrift> drift;
  for (const StageComparison& stage : CompareModel(model, compute, comm).stages) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < stage.measured_ms.size(); ++i) {
      if (stage.predicted_ms[i] > 0 && stage.measured_ms[i] > 0) {
        ratios.push_back(stage.measured_ms[i] / stage.predicted_ms[i]);
      }
    }
    if (ratios.empty()) continue;
    std::sort(ratios.begin(), ratios.end());
    drift.push_back({stage.stage, stage.samples, Quantile(ratios, 0.5), Quantile(ratios, 0.1),
                     Quantile(ratios, 0.9), UtcText(stage.since_unix_ms),
                     UtcText(stage.until_unix_ms)});
  }
  std::sort(drift.begin(), drift.end(),
            [](const StageDrift& a, const StageDrift& b) { return a.stage < b.stage; });
  return drift;
}

std::string UtcText(std::int64_t unix_ms) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(static_cast<std::time_t>(unix_ms / 1000)));
}

std::optional<std::int64_t> UtcFromText(const std::string& text) {
  std::tm time = {};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &time);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return static_cast<std::int64_t>(::timegm(&time)) * 1000;
}

}  // namespace neuroshard
