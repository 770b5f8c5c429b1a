#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/cost/compute_features.h"
#include "server/pretrain/data/measured_problem.h"
#include "server/pretrain/data/record_split.h"
#include "server/pretrain/report/regression_metrics.h"
#include "server/pretrain/train/ensemble.h"
#include "server/pretrain/train/model_training.h"

namespace neuroshard {
namespace {

// The tensors of the model to go on from, with the columns that it lacks, which weigh nothing.
TensorFile WithAllColumns(const ModelStart& start) {
  const std::span<const std::string_view> columns = ComputeFeatureNames();
  const std::vector<std::string>& known = start.manifest.compute.features;
  TensorFile file = start.files.at(start.manifest.compute.file);
  for (auto& [name, tensor] : file.tensors) {
    const bool has_columns =
        name == "feature_mean" || name == "feature_std" || name.ends_with(".table.0.weight");
    if (!has_columns || tensor.shape.back() != std::ssize(known)) continue;
    const std::size_t rows = tensor.values.size() / known.size();
    std::vector<float> values(rows * columns.size());
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const auto found = std::ranges::find(known, columns[c]);
      if (found == known.end()) continue;
      const auto from = static_cast<std::size_t>(found - known.begin());
      for (std::size_t row = 0; row < rows; ++row) {
        values[row * columns.size() + c] = tensor.values[row * known.size() + from];
      }
    }
    tensor.values = std::move(values);
    tensor.shape.back() = std::ssize(columns);
  }
  return file;
}

// What all of the shards have; `mixed` where they differ.
std::string InCommon(const std::set<std::string>& of_shards, const char* mixed) {
  return of_shards.size() == 1 ? *of_shards.begin() : mixed;
}

// Held-out samples, those of unseen tables among them, by optimizer, without pooling, by kernel and
// by type of the rows, where other samples have another.
std::map<std::string, std::vector<std::int64_t>> HeldOutByCondition(
    const std::vector<ComputeRecord>& records, const ComputeSplit& split) {
  std::map<std::string, std::vector<std::int64_t>> optimizers, pooling_modes, kernels, dtypes,
      parts;
  for (const auto* part : {&split.samples.test, &split.unseen_tables}) {
    for (const std::int64_t at : *part) {
      const RecordConditions conditions = RecordConditionsOf(records[at]);
      const bool unpooled =
          conditions.at("pooling_mode").contains(std::string(ToText(PoolingMode::kNone)));
      optimizers[*conditions.at("optimizer").begin()].push_back(at);
      pooling_modes[unpooled ? "unpooled" : "pooled"].push_back(at);
      kernels[InCommon(conditions.at("compute_kernel"), "mixed_kernels")].push_back(at);
      dtypes[InCommon(conditions.at("weight_dtype"), "mixed_dtypes")].push_back(at);
    }
  }
  for (auto* condition : {&optimizers, &pooling_modes, &kernels, &dtypes}) {
    if (condition->size() > 1) parts.merge(*condition);
  }
  return parts;
}

// Remarks on errors that held-out samples measured at about the same time have in common.
void AddDriftRemark(const std::vector<ComputeRecord>& records, const ComputeSplit& split,
                    const EnsembleFit& fit, TrainingOutcome& outcome) {
  std::vector<std::int64_t> held_out = split.samples.test;
  held_out.insert(held_out.end(), split.unseen_tables.begin(), split.unseen_tables.end());
  const std::vector<std::int64_t> at_unix_ms = Mapped<std::int64_t>(
      held_out, [&](const std::int64_t at) { return records[at].environment.measured_at_unix_ms; });
  const EnsemblePredictions said = fit.Predict(held_out);
  std::vector<double> predicted_ms = said.Model();
  const MeasurementDrift drift = DriftOf(predicted_ms, said.measured_ms, at_unix_ms);
  if (drift.least == drift.greatest) return;
  for (std::size_t i = 0; i < predicted_ms.size(); ++i) predicted_ms[i] *= drift.slowness[i];
  const std::span<const double> predicted = predicted_ms;
  const std::span<const double> measured = said.measured_ms;
  const auto mape = [&](std::size_t begin, std::size_t count) {
    return MeasureRegression(predicted.subspan(begin, count), measured.subspan(begin, count))
        .mape_percent;
  };
  const std::size_t tests = split.samples.test.size();
  std::string remark = fmt::format(
      "The machine's speed drifted while it measured: of blocks of 100 held-out compute samples, "
      "one after the other in time, the median of measured / predicted is from {:.2f} to {:.2f}. "
      "Relative to its block's median, the model has a MAPE of {:.1f} %",
      drift.least, drift.greatest, mape(0, tests));
  if (!split.unseen_tables.empty()) {
    remark += fmt::format(", on samples of unseen tables {:.1f} %",
                          mape(tests, split.unseen_tables.size()));
  }
  outcome.remarks.push_back(remark + ".");
}

}  // namespace

Status TrainUniversalCompute(const CombinedRecords<ComputeRecord>& merged,
                             const TrainingConfig& config, const ModelStart* start,
                             const FitContext& context, TrainingOutcome& outcome) {
  const std::vector<ComputeRecord>& records = merged.all;
  const ComputeSplit split =
      SplitCompute(records, config.held_out_tables, config.optimization.seed);
  NetworkTask task{NetworkKind::kUniversalTableSum, {}, split.samples, &config};
  task.problem = [&](const SampleSplit& by_record) {
    return MakeUniversalCompute(records, by_record.train, static_cast<double>(config.cache_bytes));
  };
  TensorFile widened;
  if (start != nullptr) {
    widened = WithAllColumns(*start);
    task.start = &widened;
    task.start_members = start->manifest.compute.members;
  }
  NS_ASSIGN_OR_RETURN(EnsembleFit fit, FitEnsemble(task, context));
  auto& interval = fit.manifest.interval;
  interval = CalibrateInterval(fit.Predict(split.samples.validation), kIntervalCoverage);

  std::vector<HeldOutPart> parts;
  const auto add = [&](const std::string& name, const std::string& key,
                       const std::vector<std::int64_t>& samples, bool is_part) {
    parts.push_back({name, key, samples, interval ? &*interval : nullptr, is_part});
  };
  add("compute", "compute", split.samples.test, false);
  if (!split.unseen_tables.empty()) {
    add("compute, unseen tables", "compute.unseen_tables", split.unseen_tables, false);
  }
  for (const auto& [name, samples] : HeldOutByCondition(records, split)) {
    add("compute, " + name, "compute." + name, samples, true);
  }
  if (merged.new_ones < std::ssize(records)) {
    std::vector<std::int64_t> fresh = split.samples.test;
    std::erase_if(fresh, [&](std::int64_t at) { return at >= merged.new_ones; });
    std::vector<std::int64_t> replayed = split.samples.test;
    std::erase_if(replayed, [&](std::int64_t at) { return at < merged.new_ones; });
    add("compute, new samples", "compute.new_samples", fresh, true);
    add("compute, replayed samples", "compute.replayed_samples", replayed, true);
  }
  outcome.remarks.push_back(fmt::format(
      "{} of {} tables are held out: the {} samples that have one of them are only reported on.",
      split.held_out_tables, split.tables, split.unseen_tables.size()));
  AddDriftRemark(records, split, fit, outcome);
  outcome.manifest.compute = fit.manifest;
  return AddTrained(task, fit, parts, context, outcome);
}

}  // namespace neuroshard
