#include "server/pretrain/report/model_drift_measurement.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <time.h>

#include <algorithm>
#include <ctime>

#include "common/domain/backend_names.h"
#include "server/cost/model_error.h"
#include "server/pretrain/report/model_comparison.h"

namespace neuroshard {
namespace {

// The nearest one of ascending values.
double Quantile(const std::vector<double>& sorted, double share) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<std::size_t>(share * last + 0.5)];
}

// Other kernels or collectives than the model's; not where one of the two is not stated.
bool Differs(const std::string& model, const std::string& measured) {
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

DriftMeasurement MeasureDrift(const CostModel& model, std::vector<ComputeRecord> compute,
                              std::vector<CommRecord> comm, std::int64_t made_unix_ms) {
  DriftMeasurement result;
  const CostModelInfo& info = model.info();
  const std::int64_t batch_size = info.coverage.global_batch_size;
  const MeasuredWith& with = info.measured_with;
  const auto flush = info.details.find(std::string("provenance.") + kCacheFlushKey);
  const std::string flushed = flush == info.details.end() ? "with" : flush->second;
  // Why a record says nothing; empty: it does.
  const auto reason = [&](std::int64_t measured_at, std::int64_t measured_batch_size,
                          const std::string& device) -> std::string {
    if (measured_at <= made_unix_ms) return "made before the model";
    if (batch_size > 0 && measured_batch_size != batch_size) return "another batch size";
    return Differs(with.device, device) ? "another device" : "";
  };
  const auto leaves_out = [&result](const std::string& why) {
    if (!why.empty()) ++result.left_out[why];
    return !why.empty();
  };
  std::erase_if(compute, [&](const ComputeRecord& record) {
    const MeasurementEnvironment& environment = record.environment;
    std::string why =
        reason(environment.measured_at_unix_ms, record.sample.batch_size, environment.device);
    if (why.empty() && Differs(with.backend, environment.backend)) why = "other kernels";
    const std::string own = CacheFlushOf(environment);
    if (why.empty() && !own.empty() && flushed != kBothFlushes && own != flushed) {
      why = own + " the cache flushed between iterations";
    }
    return leaves_out(why);
  });
  std::erase_if(comm, [&](const CommRecord& record) {
    std::string why = record.environments.empty()
                          ? "imported"
                          : reason(MeasuredAt(record), record.sample.batch_size,
                                   record.environments.front().device);
    if (why.empty() &&
        Differs(with.collective_backend, CollectiveBackendOf(record.environments.front()))) {
      why = "other collectives";
    }
    if (why.empty() &&
        Differs(with.collective_cadence, std::string(ToText(record.sample.cadence)))) {
      why = "another cadence";
    }
    return leaves_out(why);
  });
  std::vector<StageDrift>& drift = result.stages;
  for (const StageComparison& stage : CompareModel(model, compute, comm).stages) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < stage.measured_ms.size(); ++i) {
      if (stage.predicted_ms[i] > 0 && stage.measured_ms[i] > 0) {
        ratios.push_back(stage.measured_ms[i] / stage.predicted_ms[i]);
      }
    }
    if (ratios.empty()) continue;
    std::ranges::sort(ratios);
    drift.push_back({stage.stage, stage.samples, Quantile(ratios, 0.5), Quantile(ratios, 0.1),
                     Quantile(ratios, 0.9), UtcText(stage.since_unix_ms),
                     UtcText(stage.until_unix_ms)});
  }
  std::ranges::sort(drift, {}, &StageDrift::stage);
  return result;
}

std::string CacheFlushOf(const MeasurementEnvironment& environment) {
  const std::string settings = environment.property("settings");
  if (settings.find("flush_cache=true") != std::string::npos) return "with";
  return settings.find("flush_cache=false") != std::string::npos ? "without" : "";
}

std::string DriftVerdict(const CostModelInfo& model, const std::vector<StageDrift>& drift) {
  std::vector<std::string> off;
  for (const StageDrift& stage : drift) {
    if (!HasDrifted(model, stage)) continue;
    off.push_back(fmt::format("{} takes {:.2f} times what it predicts ({:.0f}% off is usual)",
                              stage.stage, stage.median_ratio,
                              100 * UsualError(model, stage.stage)));
  }
  std::vector<std::string> too_few;
  for (const StageDrift& stage : drift) {
    if (stage.samples < kTellingSamples) {
      too_few.push_back(fmt::format("{} ({})", stage.stage, stage.samples));
    }
  }
  const std::string untold = too_few.empty()
                                 ? ""
                                 : fmt::format("; fewer than {} measurements do not tell: {}",
                                               kTellingSamples, fmt::join(too_few, ", "));
  if (!off.empty()) {
    return fmt::format("the model has drifted: {}: measure and train again{}", fmt::join(off, ", "),
                       untold);
  }
  return too_few.size() == drift.size()
             ? "too little was measured to say whether the model still fits" + untold
             : "the model still fits: no stage is clearly further off than is usual for it" +
                   untold;
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
