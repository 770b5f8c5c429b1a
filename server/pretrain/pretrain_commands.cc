#include "server/pretrain/pretrain_commands.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/store/profile_store.h"
#include "server/cost/neural/neural_cost_model.h"
#include "server/models/model_manifest.h"
#include "server/pretrain/cost_data_import.h"
#include "server/pretrain/cost_model_training.h"
#include "server/pretrain/model_evaluation.h"
#include "server/pretrain/record_selection.h"
#include "server/pretrain/training_report.h"

namespace neuroshard {
namespace {

using Json = nlohmann::ordered_json;

void PrintJson(const CommandContext& context, const Json& json) {
  fmt::print(context.out, "{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

struct StoreRecords {
  std::vector<ComputeRecord> compute;
  std::vector<CommRecord> comm;
};

StatusOr<StoreRecords> ReadRecords(const std::string& path) {
  NS_ASSIGN_OR_RETURN(const auto store, ProfileStore::Open(path, StoreMode::kReadOnly));
  StoreRecords records;
  NS_ASSIGN_OR_RETURN(records.compute, store->ReadComputeRecords());
  NS_ASSIGN_OR_RETURN(records.comm, store->ReadCommRecords());
  return records;
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

void PrintEvaluationRow(const CommandContext& context, const char* name,
                        const std::optional<RegressionMetrics>& metrics) {
  if (!metrics) {
    fmt::print(context.out, "{:<14} {:>8}\n", name, "-");
    return;
  }
  fmt::print(context.out, "{:<14} {:>8} {:>12.4g} {:>8.2f} {:>8.4f} {:>12.4f}\n", name,
             metrics->samples, metrics->mse, metrics->mape_percent, metrics->r2,
             metrics->kendall_tau);
}

}  // namespace

Status RunTrain(const TrainCommand& command, const CommandContext& context) {
  TrainingConfig config = PresetConfig(TrainingPreset::kDefault);
  if (!command.config.empty()) {
    NS_ASSIGN_OR_RETURN(config, ReadTrainingConfig(command.config));
  }
  if (command.batch_size) config.records.batch_size = *command.batch_size;
  NS_ASSIGN_OR_RETURN(const ModelLocation location,
                      LocateModel(command.model_directory, command.existing));
  NS_ASSIGN_OR_RETURN(StoreRecords records, ReadRecords(command.store));
  auto selected =
      SelectRecords(std::move(records.compute), std::move(records.comm), config.records);
  if (!selected.ok()) return Annotate(selected.status(), command.store);
  fmt::print(context.err, "{}: {} compute and {} communication samples, {} filtered out\n",
             command.store, selected->compute.size(), selected->comm.size(),
             selected->filtered_out);

  ConsoleProgress progress(context.err, context.progress, context.clock);
  NS_ASSIGN_OR_RETURN(const TrainedCostModel model,
                      TrainCostModel(*selected, config, *context.stop, &progress));
  const auto provenance = DescribeProvenance(
      *selected, config, std::filesystem::path(command.store).filename(), context.now_unix_ms);
  NS_RETURN_IF_ERROR(PublishModel(model, location, provenance, command.existing));

  if (command.format == OutputFormat::kTable) {
    fmt::print(context.out, "{}\nwritten: {}\n", HeldOutTable(model), location.directory.string());
    return absl::OkStatus();
  }
  Json networks = Json::array();
  for (const NetworkReport* report : AllReports(model)) {
    networks.push_back({{"network", report->name},
                        {"train_samples", report->train_samples},
                        {"epochs", report->epochs},
                        {"best_epoch", report->best_epoch},
                        {"held_out", MetricsToJson(report->held_out)}});
  }
  PrintJson(context, {{"model", location.directory.string()}, {"networks", networks}});
  return absl::OkStatus();
}

Status RunImport(const ImportCommand& command, const CommandContext& context) {
  // Read first: a folder that is not there must not leave an empty store.
  NS_ASSIGN_OR_RETURN(CostData data, ReadCostData({command.compute_directory,
                                                   command.comm_directory, command.batch_size}));
  NS_ASSIGN_OR_RETURN(const auto store, ProfileStore::Open(command.store, StoreMode::kReadWrite));
  NS_ASSIGN_OR_RETURN(const ImportReport report, ImportCostData(std::move(data), store.get()));
  if (command.format == OutputFormat::kJson) {
    PrintJson(context,
              {{"compute", CountToJson(report.compute)}, {"comm", CountToJson(report.comm)}});
  } else {
    PrintCount(context, "compute", report.compute);
    PrintCount(context, "comm", report.comm);
  }
  return absl::OkStatus();
}

Status RunEvaluate(const EvaluateCommand& command, const CommandContext& context) {
  std::filesystem::path directory = std::filesystem::path(command.model_directory);
  if (!directory.has_filename()) directory = directory.parent_path();
  NS_ASSIGN_OR_RETURN(const ModelManifest manifest, ReadModelManifest(directory));
  NS_ASSIGN_OR_RETURN(const auto model, LoadNeuralCostModel(manifest, directory));
  NS_ASSIGN_OR_RETURN(const StoreRecords records, ReadRecords(command.store));
  for (const std::string& mismatch :
       ConditionMismatches(model->info(), records.compute, records.comm)) {
    fmt::print(context.err, "warning: {}\n", mismatch);
  }
  const ModelEvaluation evaluation = EvaluateModel(*model, records.compute, records.comm);
  if (evaluation.skipped_comm_samples > 0) {
    fmt::print(context.err,
               "warning: {} communication samples skipped: the model has no network for their "
               "number of ranks\n",
               evaluation.skipped_comm_samples);
  }
  if (command.format == OutputFormat::kJson) {
    PrintJson(context, {{"compute", MetricsToJson(evaluation.compute)},
                        {"forward_comm", MetricsToJson(evaluation.forward_comm)},
                        {"backward_comm", MetricsToJson(evaluation.backward_comm)}});
    return absl::OkStatus();
  }
  fmt::print(context.out, "{:<14} {:>8} {:>12} {:>8} {:>8} {:>12}\n", "", "samples", "MSE (ms^2)",
             "MAPE %", "R2", "Kendall tau");
  PrintEvaluationRow(context, "compute", evaluation.compute);
  PrintEvaluationRow(context, "forward comm", evaluation.forward_comm);
  PrintEvaluationRow(context, "backward comm", evaluation.backward_comm);
  return absl::OkStatus();
}

}  // namespace neuroshard
