#include "server/pretrain/train/model_training.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "server/pretrain/data/measured_problem.h"
#include "server/pretrain/data/repeated_samples.h"

namespace neuroshard {
namespace {

template <typename Record>
CombinedRecords<Record> Merge(const std::vector<Record>& records,
                              const std::vector<Record>& replayed, SeriesCost cost) {
  CombinedRecords<Record> merged;
  merged.all = MergeRepeats(records, cost);
  merged.new_ones = std::ssize(merged.all);
  const std::vector<Record> old = MergeRepeats(replayed, cost);
  merged.all.insert(merged.all.end(), old.begin(), old.end());
  return merged;
}

void AddWord(std::string_view word, std::vector<std::string>& words) {
  if (std::ranges::find(words, word) == words.end()) words.emplace_back(word);
}

// Conditions of the samples, and those of the model to go on from.
TrainedOnManifest TrainedOn(const std::vector<ComputeRecord>& compute,
                            const std::vector<CommRecord>& comm, const ModelStart* start) {
  TrainedOnManifest on;
  if (start != nullptr && start->manifest.trained_on) on = *start->manifest.trained_on;
  const auto add_batch = [&](std::int64_t batch_size) {
    on.min_batch_size =
        on.min_batch_size == 0 ? batch_size : std::min(on.min_batch_size, batch_size);
    on.max_batch_size = std::max(on.max_batch_size, batch_size);
  };
  for (const ComputeRecord& record : compute) {
    add_batch(record.sample.batch_size);
    const RecordConditions conditions = RecordConditionsOf(record);
    for (const auto& [condition, words] :
         {std::pair("optimizer", &on.optimizers), std::pair("weight_dtype", &on.weight_dtypes),
          std::pair("weighted", &on.weighted), std::pair("pooling_mode", &on.pooling_modes),
          std::pair("compute_kernel", &on.compute_kernels)}) {
      for (const std::string& word : conditions.at(condition)) AddWord(word, *words);
    }
  }
  for (const CommRecord& record : comm) {
    const int ranks = static_cast<int>(record.sample.dim_sums.size());
    add_batch(record.sample.batch_size);
    on.min_ranks = on.min_ranks == 0 ? ranks : std::min(on.min_ranks, ranks);
    on.max_ranks = std::max(on.max_ranks, ranks);
    on.max_hosts = std::max({on.max_hosts, 1, static_cast<int>(HostsOf(record).size())});
    AddWord(CollectiveName(KindOf(record.sample)), on.collectives);
  }
  // A model of "fused" alone says nothing of kernels, as before there were others.
  const std::string_view fused = ToText(ComputeKernel::kFused);
  if (on.compute_kernels == std::vector<std::string>{std::string(fused)}) {
    on.compute_kernels.clear();
  } else if (start != nullptr) {
    AddWord(fused, on.compute_kernels);
  }
  for (std::vector<std::string>* words :
       {&on.weight_dtypes, &on.optimizers, &on.weighted, &on.pooling_modes, &on.compute_kernels,
        &on.collectives}) {
    std::sort(words->begin(), words->end());
  }
  return on;
}

// The device or backend of both the measurements and the model to go on from; empty: neither says.
StatusOr<std::string> InCommon(const std::string& measured, const std::string& model) {
  if (!measured.empty() && !model.empty() && measured != model) {
    return FailedPrecondition("the measurements are of {}, the model to go on from is of {}",
                              measured, model);
  }
  return measured.empty() ? model : measured;
}

}  // namespace

TrainingConfig ConfigForGoingOn(TrainingConfig config, const ModelManifest& manifest) {
  const NetworkManifest& compute = manifest.compute;
  config.table_hidden.assign(compute.layers.begin() + 1, compute.layers.end() - 1);
  config.representation = compute.layers.back();
  config.head_hidden = {static_cast<int>(compute.head_width())};
  config.members = compute.members;
  config.cache_bytes = compute.cache_bytes;
  config.learning_curve = false;
  if (manifest.comm) {
    config.comm_hidden.assign(manifest.comm->layers.begin() + 1, manifest.comm->layers.end() - 1);
  }
  for (OptimizationConfig* each : {&config.optimization, &config.comm_optimization}) {
    each->learning_rate /= 4;
    each->max_epochs = std::max<std::int64_t>(1, each->max_epochs / 2);
  }
  return config;
}

StatusOr<TrainingOutcome> TrainModel(const SelectedRecords& records, const TrainingConfig& config,
                                     const ModelStart* start, const FitContext& context) {
  const bool universal = config.preset == TrainingPreset::kUniversal;
  const MeasuredConditions& measured = records.conditions;
  const ModelManifest before = start == nullptr ? ModelManifest() : start->manifest;
  TrainingOutcome outcome;
  ModelManifest& manifest = outcome.manifest;
  NS_ASSIGN_OR_RETURN(manifest.device, InCommon(measured.device, before.device));
  NS_ASSIGN_OR_RETURN(manifest.backend, InCommon(measured.backend, before.backend));
  NS_ASSIGN_OR_RETURN(const std::string collective_backend,
                      InCommon(measured.collective_backend, before.collective_backend));
  NS_ASSIGN_OR_RETURN(const std::string collective_cadence,
                      InCommon(measured.collective_cadence, CadenceOf(before)));
  const SelectedRecords none;
  const SelectedRecords& replay = start == nullptr ? none : start->replay;
  const CombinedRecords<ComputeRecord> merged =
      Merge(records.compute, replay.compute, config.cost_of_series);
  const std::vector<ComputeRecord>& compute = merged.all;
  std::vector<CommRecord> comm =
      Merge(WithoutCasts(records.comm), WithoutCasts(replay.comm), config.cost_of_series).all;
  // One rank has nothing to exchange.
  std::erase_if(comm, [](const CommRecord& record) { return record.sample.dim_sums.size() < 2; });
  // What nobody has measured anew stays as it was.
  const bool keeps_compute = start != nullptr && compute.empty();
  const bool keeps_comm = before.comm && comm.empty();
  if (!keeps_compute && std::ssize(compute) < config.min_samples) {
    return FailedPrecondition(
        "{} compute samples are too few to learn from, at least {} are needed", compute.size(),
        config.min_samples);
  }
  const RepeatNoise noise = NoiseOfRepeats(records.compute);
  if (universal && noise.samples > 0) {
    outcome.remarks.push_back(fmt::format(
        "Noise floor: {} compute samples were measured more than once; repeats differ so much that "
        "a model which knew every true cost would have a MAPE of about {:.1f} % on single "
        "measurements.",
        noise.samples, noise.mape_percent));
  }
  if (!universal) {
    manifest.global_batch_size = measured.batch_size;
    manifest.weight_dtype = measured.weight_dtype;
    manifest.optimizer = measured.optimizer;
    NS_RETURN_IF_ERROR(TrainPaperCompute(compute, config, context, outcome));
    NS_RETURN_IF_ERROR(TrainPaperComm(comm, config, context, outcome));
  } else if (keeps_compute) {
    manifest.compute = before.compute;
    outcome.files[before.compute.file] = start->files.at(before.compute.file);
  } else {
    NS_RETURN_IF_ERROR(TrainUniversalCompute(merged, config, start, context, outcome));
  }
  if (universal && std::ssize(comm) >= config.min_samples) {
    NS_RETURN_IF_ERROR(TrainUniversalComm(comm, config, start, context, outcome));
  } else if (universal && !keeps_comm) {
    context.observer->OnWarning(
        comm.empty() ? "no communication samples, so no communication is learned: the model prices "
                       "plans for one device, and for devices that a request names by their "
                       "published links"
                     : fmt::format("communication is left out: {} samples, at least {} are needed",
                                   comm.size(), config.min_samples));
    comm.clear();
  }
  if (comm.empty() && before.comm) {
    manifest.comm = before.comm;
    outcome.files[before.comm->file] = start->files.at(before.comm->file);
  }
  manifest.casts = before.casts;
  TrainCasts(Merge(CastsAlone(records.comm), CastsAlone(replay.comm), config.cost_of_series).all,
             config, outcome);
  if (keeps_compute && keeps_comm) manifest.steps = before.steps;
  manifest.input_dist = before.input_dist;
  if (!records.input_dist.empty()) {
    const auto all = Merge(records.input_dist, replay.input_dist, config.cost_of_series).all;
    NS_RETURN_IF_ERROR(
        TrainInputDist(MergeRepeats(all, config.cost_of_series), config, context, outcome));
  }
  if (manifest.networks().size() > 1) {  // compute and communication
    manifest.collective_backend = collective_backend;
    manifest.collective_cadence = collective_cadence;
  }
  if (universal) manifest.trained_on = TrainedOn(compute, comm, start);
  return outcome;
}

}  // namespace neuroshard
