#include "server/pretrain/report/model_evaluation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>

#include "common/domain/backend_names.h"
#include "server/pretrain/report/model_comparison.h"

namespace neuroshard {
namespace {

std::optional<RegressionMetrics> MetricsOf(const ModelComparison& comparison,
                                           const std::string& name) {
  const StageComparison* stage = comparison.Find(name);
  if (stage == nullptr) return std::nullopt;
  RegressionMetrics metrics = MeasureRegression(stage->predicted_ms, stage->measured_ms);
  metrics.samples = stage->samples;
  return metrics;
}

}  // namespace

ModelEvaluation EvaluateModel(const CostModel& model, std::span<const ComputeRecord> compute,
                              std::span<const CommRecord> comm) {
  const ModelComparison comparison = CompareModel(model, compute, comm);
  ModelEvaluation evaluation;
  evaluation.compute = MetricsOf(comparison, "compute");
  evaluation.forward_comm = MetricsOf(comparison, "forward_comm");
  evaluation.backward_comm = MetricsOf(comparison, "backward_comm");
  for (const auto& word : kWords<Collective>) {
    const std::string name(word.text);
    if (const auto metrics = MetricsOf(comparison, name)) evaluation.collectives[name] = *metrics;
  }
  evaluation.skipped_comm_samples = comparison.skipped_comm_samples;
  return evaluation;
}

std::vector<std::string> ConditionMismatches(const CostModelInfo& info,
                                             std::span<const ComputeRecord> compute,
                                             std::span<const CommRecord> comm) {
  std::set<std::string> batch_sizes;
  std::set<std::string> dtypes;
  std::set<std::string> optimizers;
  std::set<std::string> devices;
  std::set<std::string> backends;
  std::set<std::string> collective_backends;
  std::set<std::string> cadences;
  for (const ComputeRecord& record : compute) {
    batch_sizes.insert(fmt::format("{}", record.sample.batch_size));
    optimizers.insert(std::string(ToText(record.sample.optimizer)));
    devices.insert(record.environment.device);
    backends.insert(record.environment.backend);
    for (const MeasuredShard& shard : record.sample.shards) {
      dtypes.insert(std::string(ToText(shard.weight_dtype)));
    }
  }
  for (const CommRecord& record : comm) {
    batch_sizes.insert(fmt::format("{}", record.sample.batch_size));
    cadences.insert(std::string(ToText(record.sample.cadence)));
    for (const MeasurementEnvironment& environment : record.environments) {
      collective_backends.insert(CollectiveBackendOf(environment));
    }
  }
  std::vector<std::string> mismatches;
  const auto compare = [&](const std::string& what, const std::string& model,
                           std::set<std::string> measured) {
    measured.erase(model);
    measured.erase("");  // not stated
    if (model.empty() || measured.empty()) return;
    mismatches.push_back(fmt::format("the model is for {} {}, the store also has {}", what, model,
                                     fmt::join(measured, ", ")));
  };
  compare("global batch size",
          info.coverage.global_batch_size == 0 ? ""
                                               : fmt::format("{}", info.coverage.global_batch_size),
          std::move(batch_sizes));
  compare("weight dtype", info.coverage.weight_dtype, std::move(dtypes));
  compare("optimizer", info.coverage.optimizer, std::move(optimizers));
  compare("device", info.measured_with.device, std::move(devices));
  compare("backend", info.measured_with.backend, std::move(backends));
  compare("collectives", info.measured_with.collective_backend, std::move(collective_backends));
  compare("cadence", info.measured_with.collective_cadence, std::move(cadences));
  return mismatches;
}

}  // namespace neuroshard
