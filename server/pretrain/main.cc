// neuroshard-pretrain: profile store in, cost model out.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <string>

#include "common/base/build_info.h"
#include "server/pretrain/interrupt_signal.h"
#include "server/pretrain/pretrain_commands.h"

namespace {

using namespace neuroshard;  // NOLINT(google-build-using-namespace): wiring only

constexpr int kFailure = 1;
constexpr int kUsage = 2;

void AddFormat(CLI::App* command, OutputFormat* format) {
  const auto set = [format](const std::string& word) {
    *format = word == "json" ? OutputFormat::kJson : OutputFormat::kTable;
  };
  command->add_option_function<std::string>("--format", set, "table, or json: one document")
      ->check(CLI::IsMember({"table", "json"}));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Turns measurements of real hardware into NeuroShard cost models");
  app.set_version_flag("--version", BuildText());
  app.require_subcommand(1);

  TrainCommand train;
  auto* train_app = app.add_subcommand("train", "Train a cost model on a profile store");
  train_app->add_option("--store", train.store, "Profile store (FILE.db)")->required();
  train_app->add_option("--config", train.config, "Training configuration (configs/pretrain.yaml)");
  train_app->add_option("--out", train.model_directory, "ROOT/NAME/VERSION to write")->required();
  train_app->add_option("--batch-size", train.batch_size, "Learn from this batch size only");
  train_app->add_flag_callback(
      "--overwrite", [&] { train.existing = ExistingVersion::kReplace; }, "Replace the version");
  auto* resume = train_app->add_option("--resume-from", train.resume_from,
                                       "Go on from this universal model (ROOT/NAME/VERSION)");
  train_app
      ->add_option("--replay-store", train.replay_store,
                   "Learn again from what that model was trained on, so that it is not forgotten")
      ->needs(resume);
  train_app->add_option("--fabric", train.fabric,
                        "Price communication, which the store has no measurements of, by the "
                        "published figures in this file (configs/fabrics)");
  AddFormat(train_app, &train.format);

  ImportCommand import;
  auto* import_app =
      app.add_subcommand("import-cost-data", "Import cost data in NeuroShard's text formats");
  auto* compute = import_app->add_option("--compute", import.compute_directory,
                                         "Folder with table_configs.json and data.txt");
  auto* comm = import_app->add_option("--comm", import.comm_directory, "Folder with data.txt");
  import_app->add_option("--store", import.store, "Profile store (FILE.db)")->required();
  import_app->add_option("--batch-size", import.batch_size, "Batch size it was measured at")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  AddFormat(import_app, &import.format);

  EvaluateCommand evaluate;
  auto* evaluate_app = app.add_subcommand("evaluate", "Predict every sample of a profile store");
  evaluate_app->add_option("--model", evaluate.model_directory, "ROOT/NAME/VERSION")->required();
  evaluate_app->add_option("--store", evaluate.store, "Profile store (FILE.db)")->required();
  AddFormat(evaluate_app, &evaluate.format);

  DriftCommand drift;
  auto* drift_app = app.add_subcommand(
      "drift", "Compare a model with measurements made after it, and note it beside the model");
  drift_app->add_option("--model", drift.model_directory, "ROOT/NAME/VERSION")->required();
  drift_app->add_option("--store", drift.store, "Profile store (FILE.db)")->required();
  AddFormat(drift_app, &drift.format);

  try {
    app.parse(argc, argv);
    if (*import_app && !*compute && !*comm) throw CLI::RequiredError("--compute or --comm");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }

  const SteadyClock clock;
  const InterruptSignal stop;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const CommandContext context{
      stdout, stderr, isatty(STDERR_FILENO) ? ProgressStyle::kBar : ProgressStyle::kLines,
      &clock, &stop,  std::chrono::duration_cast<std::chrono::milliseconds>(now).count()};
  const Status status = *train_app    ? RunTrain(train, context)
                        : *import_app ? RunImport(import, context)
                        : *drift_app  ? RunDrift(drift, context)
                                      : RunEvaluate(evaluate, context);
  if (status.ok()) return 0;
  fmt::print(stderr, "error: {}\n", Message(status));
  return kFailure;
}
