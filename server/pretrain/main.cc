// neuroshard-pretrain: profile store in, cost model out.
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/clock.h"
#include "common/base/printable_text.h"
#include "common/base/stop_signal.h"
#include "common/cli/command_line_parse.h"
#include "common/cli/exit_code.h"
#include "common/cli/option_values.h"
#include "server/pretrain/pretrain_commands.h"

namespace {

using namespace neuroshard;  // NOLINT(google-build-using-namespace): wiring only

// Ctrl-C and SIGTERM for the main thread, which does the work: handlers that do nothing but set a
// flag. At most one at a time.
class InterruptSignal final : public StopSignal {
 public:
  InterruptSignal() {
    std::signal(SIGINT, OnSignal);
    std::signal(SIGTERM, OnSignal);
  }
  ~InterruptSignal() override {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
  }
  InterruptSignal(InterruptSignal&&) = delete;

  bool ShouldStop() const override { return interrupted != 0; }

 private:
  static void OnSignal(int) { interrupted = 1; }

  static inline volatile std::sig_atomic_t interrupted = 0;
};

void AddFormat(CLI::App* command, OutputFormat* format) {
  const auto set = [format](const std::string& word) {
    *format = word == "json" ? OutputFormat::kJson : OutputFormat::kTable;
  };
  command->add_option_function<std::string>("--format", set, "Form of the result")
      ->check(OneOf({"table", "json"}));
}

// Why a directory that shall hold a cost model has none; empty: it has one.
std::string WhyNoModel(const std::string& directory) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::path(directory) / "model.yaml", error)) return "";
  std::vector<std::string> versions;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (std::filesystem::exists(entry.path() / "model.yaml", error)) {
      versions.push_back(entry.path().string());
    }
  }
  std::ranges::sort(versions);
  if (!versions.empty()) {
    return fmt::format("must be ROOT/NAME/VERSION, got {}, which holds {}", Quoted(directory),
                       fmt::join(versions, ", "));
  }
  return fmt::format("must be ROOT/NAME/VERSION with a model.yaml, got {}", Quoted(directory));
}

void AddModel(CLI::App* command, std::string* directory) {
  command->add_option("--model", *directory, "Cost model")
      ->type_name("ROOT/NAME/VERSION")
      ->required()
      ->check(WhyNoModel);
}

CLI::App* AddComparison(CLI::App* command, CompareCommand* options) {
  AddModel(command, &options->model_directory);
  AddStoreOption(*command, options->store, "Profile store");
  AddFormat(command, &options->format);
  return command;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Turns measurements of real hardware into NeuroShard cost models.",
               "neuroshard-pretrain");
  app.footer(kExitCodesText);
  app.require_subcommand(1);

  TrainCommand train;
  auto* train_app = app.add_subcommand("train", "Train a cost model on a profile store");
  AddStoreOption(*train_app, train.store, "Profile store");
  train_app->add_option("--config", train.config, "Training configuration (configs/pretrain.yaml)");
  train_app->add_option("--out", train.model_directory, "Model to write")
      ->type_name("ROOT/NAME/VERSION")
      ->required();
  InRange(
      train_app->add_option("--batch-size", train.batch_size, "Learn from this batch size only"),
      std::int64_t{1}, std::int64_t{1} << 40);
  train_app->add_flag_callback(
      "--overwrite", [&] { train.existing = ExistingVersion::kReplace; }, "Replace the version");
  auto* resume =
      train_app->add_option("--resume-from", train.resume_from, "Go on from this universal model")
          ->type_name("ROOT/NAME/VERSION")
          ->check(WhyNoModel);
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
  AddStoreOption(*import_app, import.store, "Profile store");
  InRange(
      import_app->add_option("--batch-size", import.batch_size, "Batch size it was measured at"),
      std::int64_t{1}, std::int64_t{1} << 40)
      ->capture_default_str();
  AddFormat(import_app, &import.format);

  CompareCommand compare;
  AddComparison(app.add_subcommand("evaluate", "Predict every sample of a profile store"),
                &compare);
  auto* drift_app = AddComparison(
      app.add_subcommand(
          "drift",
          "Compare a model with like measurements made after it, and note it beside the model"),
      &compare);

  ServeCommand serve;
  auto* serve_app = app.add_subcommand(
      "serve",
      "Say which version planners use for requests that name none: back, too, in one step");
  AddModel(serve_app, &serve.model_directory);
  InRange(serve_app->add_option(
              "--share", serve.share,
              "Only for this share of the requests; the version that serves now keeps the rest"),
          0.0, 1.0);
  serve_app->add_flag("--force", serve.force, "In spite of reasons against the version");

  import_app->callback([&] {
    if (!*compute && !*comm) throw CLI::RequiredError("--compute or --comm");
  });
  if (const auto ended = ParseCommandLine(app, argc, argv, std::cout, std::cerr)) return *ended;

  const SteadyClock clock;
  const InterruptSignal stop;
  const CommandContext context{
      stdout, stderr, isatty(STDERR_FILENO) ? DisplayMode::kTerminal : DisplayMode::kLog,
      &clock, &stop,  UnixMillisecondsNow()};
  const Status status = *train_app    ? RunTrain(train, context)
                        : *import_app ? RunImport(import, context)
                        : *drift_app  ? RunDrift(compare, context)
                        : *serve_app  ? RunServe(serve, context)
                                      : RunEvaluate(compare, context);
  if (status.ok()) return 0;
  fmt::print(stderr, "error: {}\n", Message(status));
  return kExitFailure;
}
