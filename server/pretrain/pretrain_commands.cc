#include "server/pretrain/pretrain_commands.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "common/store/profile_store.h"
#include "server/cost/model_error.h"
#include "server/models/model_channel.h"
#include "server/networks/fabric_file.h"
#include "server/networks/model_drift.h"
#include "server/networks/model_manifest.h"
#include "server/networks/network_cost_model.h"
#include "server/pretrain/data/record_selection.h"
#include "server/pretrain/fit/fit_run.h"
#include "server/pretrain/report/model_comparison.h"
#include "server/pretrain/report/model_drift_measurement.h"
#include "server/pretrain/report/model_publication.h"
#include "server/pretrain/report/training_report.h"
#include "server/pretrain/train/model_training.h"

namespace neuroshard {
namespace {

using Json = nlohmann::ordered_json;

void PrintJson(const CommandContext& context, const Json& json) {
  fmt::print(context.out, "{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

// Training as people watch it.
class ConsoleProgress final : public TrainingObserver {
 public:
  explicit ConsoleProgress(const CommandContext& context)
      : clock_(*context.clock),
        display_(
            [err = context.err](std::string_view text) {
              fmt::print(err, "{}", text);
              std::fflush(err);
            },
            clock_, context.progress) {}

  void OnEpoch(const EpochReport& report) override {
    if (report.network != network_) {
      network_ = report.network;
      begin_ = clock_.Now();
      display_.Begin(network_ + " epoch", report.max_epochs, report.epoch - 1);
    }
    display_.Update(
        report.epoch,
        fmt::format("train {:.5g} validation {:.5g} best {:.5g} (epoch {})", report.train_loss,
                    report.validation_loss, report.best_validation_loss, report.best_epoch));
  }
  void OnFinished(const EpochReport& last, const std::string& reason) override {
    display_.End();
    display_.Note(
        fmt::format("{}: {} after epoch {}; best validation loss {:.5g} in epoch {}; {:.1f} s",
                    last.network, reason, last.epoch, last.best_validation_loss, last.best_epoch,
                    MillisecondsBetween(begin_, clock_.Now()) / 1000));
  }
  void OnWarning(const std::string& message) override { display_.Note("warning: " + message); }

 private:
  const Clock& clock_;
  ProgressDisplay display_;
  std::string network_;
  TimePoint begin_{};
};

struct StoreRecords {
  std::vector<ComputeRecord> compute;
  std::vector<CommRecord> comm;
  std::vector<std::string> warnings;
};

// Without samples that have no id to look up, which sweeps draw of tables without lookups: no rank
// of a job is one, and the few microseconds of their launches would be most of a relative error.
StatusOr<StoreRecords> ReadRecords(const std::string& path, SeriesCost cost = SeriesCost::kMedian) {
  NS_ASSIGN_OR_RETURN(const auto store, ProfileStore::Open(path, StoreMode::kReadOnly));
  StoreRecords records;
  NS_ASSIGN_OR_RETURN(records.compute, store->ReadRecords<ComputeRecord>(cost));
  NS_ASSIGN_OR_RETURN(records.comm, store->ReadRecords<CommRecord>(cost));
  const auto idle = std::erase_if(records.compute, [](const ComputeRecord& of) {
    return std::ranges::all_of(of.sample.shards, [&](const auto& shard) {
      return static_cast<double>(of.sample.batch_size) * shard.pooling_factor < 0.5;  // rounded
    });
  });
  if (idle > 0)
    records.warnings = {fmt::format("{} compute samples look nothing up and are left out.", idle)};
  return records;
}

// What a training learns from.
StatusOr<SelectedRecords> ReadSelected(const std::string& path, const TrainingConfig& config) {
  NS_ASSIGN_OR_RETURN(StoreRecords records, ReadRecords(path, config.cost_of_series));
  auto selected =
      SelectRecords(std::move(records.compute), std::move(records.comm), config.records,
                    config.preset == TrainingPreset::kUniversal ? ConditionSupport::kAny
                                                                : ConditionSupport::kOne);
  if (!selected.ok()) return Annotate(selected.status(), path);
  for (const std::string& text : records.warnings) selected->warnings.push_back(text);
  return selected;
}

void PrintWarnings(const CommandContext& context, const std::vector<std::string>& warnings) {
  for (const std::string& text : warnings) fmt::print(context.err, "warning: {}\n", text);
}

Json CountToJson(const std::optional<ImportCount>& count) {
  if (!count) return nullptr;
  return {{"lines", count->lines},
          {"imported", count->imported},
          {"already_there", count->already_there},
          {"malformed", count->malformed}};
}

void PrintCount(const CommandContext& context, const char* what,
                const std::optional<ImportCount>& count) {
  if (!count) return;
  fmt::print(context.out, "{}: {} lines, {} samples imported, {} already there, {} lines malformed",
             what, count->lines, count->imported, count->already_there, count->malformed);
  for (std::size_t i = 0; i < count->first_malformed.size(); ++i) {
    fmt::print(context.out, "{}{}", i == 0 ? " (line " : ", ", count->first_malformed[i]);
  }
  fmt::print(context.out, "{}\n", count->first_malformed.empty() ? "" : ")");
}

// ROOT/NAME/VERSION without a slash at the end.
std::filesystem::path ModelDirectory(const std::string& path) {
  const std::filesystem::path directory(path);
  return directory.has_filename() ? directory : directory.parent_path();
}

// A model to compare, or to serve.
struct LoadedModel {
  std::filesystem::path directory;
  ModelManifest manifest;
  std::shared_ptr<const CostModel> model;
};

StatusOr<LoadedModel> ReadModel(const std::string& path) {
  LoadedModel loaded;
  loaded.directory = ModelDirectory(path);
  NS_ASSIGN_OR_RETURN(loaded.manifest, ReadModelManifest(loaded.directory));
  NS_ASSIGN_OR_RETURN(loaded.model, LoadCostModel(loaded.manifest, loaded.directory));
  return loaded;
}

StatusOr<TrainingOutcome> Train(const TrainCommand& command, const SelectedRecords& records,
                                const TrainingConfig& config, const FitContext& fit) {
  if (command.resume_from.empty()) return TrainModel(records, config, nullptr, fit);
  const std::filesystem::path directory = ModelDirectory(command.resume_from);
  ModelStart start;
  NS_ASSIGN_OR_RETURN(start.manifest, ReadModelManifest(directory));
  if (config.preset != TrainingPreset::kUniversal || !start.manifest.is_universal()) {
    return FailedPrecondition(
        "{}: only universal models can be trained on, by the universal preset",
        command.resume_from);
  }
  for (const NetworkManifest* network : start.manifest.networks()) {
    NS_ASSIGN_OR_RETURN(start.files[network->file], ReadTensorFile(directory / network->file));
  }
  if (!command.replay_store.empty()) {
    NS_ASSIGN_OR_RETURN(start.replay, ReadSelected(command.replay_store, config));
  }
  return TrainModel(records, ConfigForGoingOn(config, start.manifest), &start, fit);
}

// Instead of measured communication; nothing where there are measurements, or nobody names one.
StatusOr<std::optional<Fabric>> ChosenFabric(const TrainCommand& command,
                                             const SelectedRecords& records) {
  std::optional<Fabric> fabric;
  bool measured = !records.comm.empty();
  if (!command.resume_from.empty()) {
    NS_ASSIGN_OR_RETURN(const ModelManifest start,
                        ReadModelManifest(ModelDirectory(command.resume_from)));
    measured = measured || start.comm.has_value();
    fabric = start.fabric;
  }
  if (measured && !command.fabric.empty()) {
    return InvalidArgument(
        "--fabric {}: communication was measured ({}); a fabric stands in where nobody has",
        command.fabric,
        records.comm.empty() ? command.resume_from + " has learned it"
                             : fmt::format("{} samples in the store", records.comm.size()));
  }
  if (measured) return std::optional<Fabric>();
  if (!command.fabric.empty()) {
    NS_ASSIGN_OR_RETURN(fabric, ReadFabricFile(command.fabric));
  }
  return fabric;
}

void UseFabric(const Fabric& fabric, TrainingObserver& observer, TrainingOutcome& outcome) {
  const std::string remark = fmt::format(
      "Communication is not measured: it is priced by the published figures of the fabric {}.",
      fabric.name);
  observer.OnWarning(remark);
  outcome.remarks.push_back(remark);
  outcome.manifest.fabric = fabric;
}

int TrainingThreads(const TrainingConfig& config) {
  if (config.threads > 0) return static_cast<int>(config.threads);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Whether planners serve the version, once it is published, to requests that name none: they take
// it, no channel says which one serves, and none is newer.
bool WillServeAsNewest(const ModelManifest& manifest, const ModelLocation& location) {
  const std::filesystem::path folder = location.directory.parent_path();
  const bool has_channel = !absl::IsNotFound(ReadModelChannel(folder).status());
  if (has_channel || !manifest.unusable_reason.empty()) return false;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    if (VersionFromName(entry.path().filename()).value_or(0) > location.version) return false;
  }
  return true;
}

void PrintOutcome(const TrainCommand& command, const TrainingOutcome& outcome,
                  const ModelLocation& location, const CommandContext& context) {
  if (command.format == OutputFormat::kTable) {
    fmt::print(context.out, "{}\nwritten: {}\n", HeldOutTable(outcome),
               location.directory.string());
    return;
  }
  Json networks = Json::array();
  for (const NetworkReport& report : outcome.reports) {
    networks.push_back(
        {{"network", report.name},
         {"train_samples", report.train_samples},
         {"epochs", report.epochs},
         {"best_epoch", report.best_epoch},
         {"held_out", MetricsToJson(report.held_out)},
         {"interval_coverage", report.coverage ? Json(*report.coverage) : Json(nullptr)}});
  }
  const std::string& reason = outcome.manifest.unusable_reason;
  PrintJson(context, {{"model", location.directory.string()},
                      {"usable", reason.empty()},
                      {"reason", reason.empty() ? Json(nullptr) : Json(reason)},
                      {"networks", networks}});
}

}  // namespace

Status RunTrain(const TrainCommand& command, const CommandContext& context) {
  TrainingConfig config = PresetConfig(TrainingPreset::kUniversal);
  if (!command.config.empty()) {
    NS_ASSIGN_OR_RETURN(ConfigReader reader, ConfigReader::FromFile(command.config));
    NS_ASSIGN_OR_RETURN(config, ReadTrainingConfig(std::move(reader)));
  }
  if (command.batch_size) config.records.batch_size = *command.batch_size;
  NS_ASSIGN_OR_RETURN(const ModelLocation location,
                      LocateModel(command.model_directory, command.existing));
  NS_ASSIGN_OR_RETURN(const SelectedRecords selected, ReadSelected(command.store, config));
  fmt::print(context.err, "{}: {} compute and {} communication samples, {} filtered out\n",
             command.store, selected.compute.size(), selected.comm.size(), selected.filtered_out);

  NS_ASSIGN_OR_RETURN(const std::optional<Fabric> fabric, ChosenFabric(command, selected));

  ConsoleProgress progress(context);
  for (const std::string& warning : selected.warnings) progress.OnWarning(warning);
  // Hidden, so that a planner that watches the repository does not take it for a version.
  CheckpointFolder checkpoints(
      location.directory.parent_path() / fmt::format(".training-{}", location.version),
      context.clock);
  auto trained = Train(command, selected, config,
                       {context.stop, TrainingThreads(config), &progress, &checkpoints});
  if (absl::IsCancelled(trained.status())) {
    return absl::CancelledError("interrupted; the same command goes on from the last epoch");
  }
  if (!trained.ok()) return trained.status();
  TrainingOutcome outcome = *std::move(trained);
  if (fabric) UseFabric(*fabric, progress, outcome);
  for (const std::string& warning : selected.warnings) outcome.remarks.push_back(warning);
  if (const std::string cadence = CadenceOf(outcome.manifest); !cadence.empty()) {
    outcome.remarks.push_back(fmt::format("Collectives were measured with cadence {}.", cadence));
  }
  outcome.manifest.unusable_reason = UnusableReason(outcome, config.min_compute_tau);
  if (!outcome.manifest.unusable_reason.empty()) {
    progress.OnWarning(
        fmt::format("the model is marked unusable: {}", outcome.manifest.unusable_reason));
  }
  ModelManifest described = outcome.manifest;
  described.metrics = ManifestMetrics(outcome);
  described.unusable_reason.clear();  // said above
  if (const auto reasons = ReasonsAgainst(InfoOfManifest(described)); !reasons.empty()) {
    const std::string poor = fmt::format("{}", fmt::join(reasons, "; "));
    progress.OnWarning(fmt::format("the model is poor{}: {}",
                                   WillServeAsNewest(outcome.manifest, location)
                                       ? ", and planners will serve it as its newest version"
                                       : "",
                                   poor));
    outcome.remarks.push_back(fmt::format("The model is poor: {}.", poor));
  }
  auto provenance = DescribeProvenance(
      selected, config, std::filesystem::path(command.store).filename(), context.now_unix_ms);
  if (!command.resume_from.empty()) provenance["resumed_from"] = command.resume_from;
  NS_RETURN_IF_ERROR(PublishModel(outcome, location, provenance, command.existing));
  checkpoints.Remove();
  PrintOutcome(command, outcome, location, context);
  return absl::OkStatus();
}

Status RunImport(const ImportCommand& command, const CommandContext& context) {
  // Read first: a folder that is not there must not leave an empty store.
  NS_ASSIGN_OR_RETURN(CostData data, ReadCostData(command));
  NS_ASSIGN_OR_RETURN(const auto store, ProfileStore::Open(command.store, StoreMode::kReadWrite));
  NS_RETURN_IF_ERROR(ImportCostData(data, store.get()));
  if (command.format == OutputFormat::kJson) {
    PrintJson(context, {{"compute", CountToJson(data.compute_count)},
                        {"comm", CountToJson(data.comm_count)}});
  } else {
    PrintCount(context, "compute", data.compute_count);
    PrintCount(context, "comm", data.comm_count);
  }
  return absl::OkStatus();
}

Status RunEvaluate(const CompareCommand& command, const CommandContext& context) {
  NS_ASSIGN_OR_RETURN(const LoadedModel loaded, ReadModel(command.model_directory));
  NS_ASSIGN_OR_RETURN(const StoreRecords records, ReadRecords(command.store));
  PrintWarnings(context, records.warnings);
  PrintWarnings(context, ConditionMismatches(loaded.model->info(), records.compute, records.comm));
  const ModelComparison comparison = CompareModel(*loaded.model, records.compute, records.comm);
  if (comparison.skipped_comm_samples > 0) {
    fmt::print(context.err,
               "warning: {} communication samples skipped: the model does not know their number of "
               "ranks, or prices their collective without start offsets only\n",
               comparison.skipped_comm_samples);
  }
  const std::map<std::string, RegressionMetrics> metrics = comparison.Metrics();
  std::vector<std::pair<std::string, std::optional<RegressionMetrics>>> rows;
  for (const char* stage :
       {"compute", "forward_comm", "backward_comm", "all_gather", "all_reduce", "reduce_scatter"}) {
    const auto found = metrics.find(stage);
    if (found != metrics.end()) rows.emplace_back(stage, found->second);
    // Other collectives are only there where they were measured.
    if (found == metrics.end() && rows.size() < 3) rows.emplace_back(stage, std::nullopt);
  }
  if (command.format == OutputFormat::kJson) {
    Json json;
    for (const auto& [name, of] : rows) json[name] = MetricsToJson(of);
    PrintJson(context, json);
    return absl::OkStatus();
  }
  fmt::print(context.out, "{:<14} {:>8} {:>12} {:>8} {:>8} {:>12}\n", "", "samples", "MSE (ms^2)",
             "MAPE %", "R2", "Kendall tau");
  for (const auto& [name, of] : rows) {
    if (!of) fmt::print(context.out, "{:<14} {:>8}\n", name, "-");
    if (!of) continue;
    fmt::print(context.out, "{:<14} {:>8} {:>12.4g} {:>8.2f} {:>8.4f} {:>12.4f}\n", name,
               of->samples, of->mse, of->mape_percent, of->r2, of->kendall_tau);
  }
  return absl::OkStatus();
}

Status RunDrift(const CompareCommand& command, const CommandContext& context) {
  NS_ASSIGN_OR_RETURN(const LoadedModel loaded, ReadModel(command.model_directory));
  const auto& [directory, manifest, model] = loaded;
  NS_ASSIGN_OR_RETURN(StoreRecords records, ReadRecords(command.store));
  PrintWarnings(context, records.warnings);
  const auto trained_at = manifest.provenance.find("trained_at");
  const std::optional<std::int64_t> made =
      trained_at == manifest.provenance.end() ? std::nullopt : UtcFromText(trained_at->second);
  if (!made) {
    return FailedPrecondition(
        "{}: model.yaml does not say when the model was made (provenance.trained_at)",
        directory.string());
  }
  const DriftMeasurement measured =
      MeasureDrift(*model, std::move(records.compute), std::move(records.comm), *made);
  std::vector<StageDrift> drift = measured.stages;
  std::vector<std::string> left_out;
  for (const auto& [reason, samples] : measured.left_out) {
    left_out.push_back(fmt::format("{} {}", samples, reason));
  }
  if (drift.empty()) {
    return FailedPrecondition(
        "{} has no measurement of the model's backends made after {}, when the model was made{}",
        command.store, trained_at->second,
        left_out.empty() ? "" : fmt::format("; left out: {}", fmt::join(left_out, ", ")));
  }
  // A trainer's steps are not in the store: what the file says of them stays.
  for (const StageDrift& stage : manifest.drift) {
    if (stage.stage == kStepsStage) drift.push_back(stage);
  }
  NS_RETURN_IF_ERROR(WriteModelDrift(directory, drift));
  const std::string verdict = DriftVerdict(model->info(), drift);
  if (command.format == OutputFormat::kJson) {
    Json json = Json::object();
    bool drifted = false;
    for (const StageDrift& stage : drift) {
      const bool has_drifted = HasDrifted(model->info(), stage);
      drifted = drifted || has_drifted;
      json[stage.stage] = {{"samples", stage.samples}, {"median_ratio", stage.median_ratio},
                           {"p10", stage.p10_ratio},   {"p90", stage.p90_ratio},
                           {"since", stage.since},     {"until", stage.until},
                           {"drifted", has_drifted}};
    }
    json["verdict"] = {{"drifted", drifted}, {"text", verdict}, {"left_out", measured.left_out}};
    PrintJson(context, json);
    return absl::OkStatus();
  }
  fmt::print(context.out, "{:<14} {:>8} {:>20} {:>8} {:>8}\n", "", "samples",
             "measured / predicted", "p10", "p90");
  for (const StageDrift& stage : drift) {
    fmt::print(context.out, "{:<14} {:>8} {:>20.3f} {:>8.3f} {:>8.3f}\n", stage.stage,
               stage.samples, stage.median_ratio, stage.p10_ratio, stage.p90_ratio);
  }
  if (!left_out.empty()) fmt::print(context.out, "left out: {}\n", fmt::join(left_out, ", "));
  fmt::print(context.out, "{}\n", verdict);
  return absl::OkStatus();
}

Status RunServe(const ServeCommand& command, const CommandContext& context) {
  NS_ASSIGN_OR_RETURN(const LoadedModel loaded, ReadModel(command.model_directory));
  const auto& [directory, manifest, model] = loaded;
  const auto reasons = ReasonsAgainst(model->info());
  // A share of 0 takes the version back.
  if (!reasons.empty() && command.share != 0.0) {
    const std::string text =
        fmt::format("{} should not serve: {}", directory.string(), fmt::join(reasons, "; "));
    if (!command.force) return FailedPrecondition("{}; --force serves it all the same", text);
    fmt::print(context.err, "warning: {}\n", text);
  }
  const std::filesystem::path folder = directory.parent_path();
  NS_ASSIGN_OR_RETURN(const ModelChannel channel,
                      ChannelFor(folder, manifest.version, command.share));
  NS_RETURN_IF_ERROR(WriteModelChannel(folder, channel));
  fmt::print(context.out, "{}: {}\n", manifest.name, channel.ToText());
  return absl::OkStatus();
}

}  // namespace neuroshard
