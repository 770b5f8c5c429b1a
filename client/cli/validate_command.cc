#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/command_options.h"
#include "client/cli/commands.h"
#include "client/cli/input_file.h"
#include "client/cli/validation_output.h"
#include "client/validate/plan_shards.h"
#include "client/validate/validation.h"
#include "common/base/clock.h"
#include "common/base/stop_signal.h"
#include "common/base/violations.h"
#include "common/cli/exit_code.h"
#include "common/cli/option_values.h"
#include "common/codec/plan_codec.h"
#include "common/codec/request_codec.h"
#include "common/domain/plan_cost.h"
#include "common/rpc/process_signals.h"
#include "common/store/profile_store.h"

namespace neuroshard {
namespace {

struct ValidateOptions {
  std::string request_file;
  std::string plan_file;
  std::vector<std::string> workers;
  std::string planner;
  TlsFiles tls = {};
  std::string model;
  std::string store_file;
  std::int64_t max_time_ms = MeasurementSettings().max_time_ms;
  OutputOptions output;
};

// A prediction, and how the collectives that it learned from followed each other.
struct Prediction {
  std::optional<PlanCost> cost;
  Cadence cadence = Cadence::kBarrier;
};

Cadence CadenceOf(const v1::PriceBasis& basis) {
  return FromText<Cadence>(basis.collective_cadence()).value_or(Cadence::kBarrier);
}

// What the planner says about the plan now, or what the plan's file says it said when it made it.
StatusOr<Prediction> Predict(const ValidateOptions& options, v1::ShardPlanRequest request,
                             const PlanFile& file) {
  if (options.planner.empty()) {
    if (!file.cost) return Prediction();
    return Prediction{DecodePlanCost(*file.cost), CadenceOf(file.price_basis)};
  }
  OverrideModel(options.model, request);
  const PlannerClient planner(options.planner, {.tls = options.tls.Read()});
  NS_ASSIGN_OR_RETURN(const auto response, planner.EvaluatePlan(std::move(request), file.plan));
  if (!response.legal()) {
    Violations violations;
    for (const v1::PlanViolation& violation : response.violations())
      violations.Add(violation.field(), violation.description());
    return violations.ToStatus();
  }
  return Prediction{DecodePlanCost(response.cost()), CadenceOf(response.price_basis())};
}

// Takes the distribution of ids out of totals that are compared with some that do not have it.
// Whether it was in.
bool LeaveOutInputDist(PlanCost& cost) {
  double most_ms = 0;
  bool left_out = false;
  for (RankCost& rank : cost.ranks) {
    const double with_ms = rank.total_ms();
    rank.input_dist_hidden = true;
    left_out = left_out || rank.total_ms() < with_ms;
    most_ms = std::max(most_ms, rank.total_ms());
  }
  if (!left_out) return false;
  for (RankCost& rank : cost.ranks) rank.intervals.total = TotalInterval(rank);
  if (cost.interval) cost.interval = EmbeddingCostInterval(cost.ranks, cost.interval_coverage);
  cost.embedding_cost_ms = most_ms;
  return true;
}

bool HasInputDist(const PlanCost& cost) {
  return std::ranges::any_of(cost.ranks,
                             [](const RankCost& rank) { return rank.input_dist_ms.has_value(); });
}

StatusOr<ValidationReport> Measure(const ValidateOptions& options,
                                   const v1::ShardPlanRequest& message,
                                   const v1::Plan& plan_message, Cadence cadence,
                                   const Console& console) {
  NS_ASSIGN_OR_RETURN(const PlanRequest request, DecodePlanRequest(message, RequestLimits()));
  NS_ASSIGN_OR_RETURN(const Plan plan, DecodePlan(plan_message));
  NS_ASSIGN_OR_RETURN(const std::vector<RankShards> ranks, ShardsByRank(request, plan));
  console.err << WarningLines(request.warnings, kUnwrapped);
  ValidationOptions validation;
  validation.workers = options.workers;
  validation.tls = options.tls.Read();
  validation.settings.max_time_ms = options.max_time_ms;
  validation.cadence = cadence;
  CatchProcessSignals();  // not earlier: waiting for the planner may simply be ended
  ManualStop stop;
  const SignalThread signals({[&stop] { stop.Stop(); }, nullptr});
  const SteadyClock clock;
  ProgressDisplay display(console.err, clock, DisplayMode::kLog);
  NS_ASSIGN_OR_RETURN(ValidationReport report, Validate(request, ranks, validation, stop, display));
  for (std::string& line : NotMeasuredOf(request, plan)) report.notes.push_back(std::move(line));
  if (cadence != Cadence::kBarrier && !report.comm.empty()) {
    report.notes.push_back(fmt::format(
        "collectives were measured with cadence {}, as those that the cost model learned from",
        ToText(cadence)));
  }
  return report;
}

Status Record(const ValidateOptions& options, const v1::ShardPlanRequest& request,
              const ValidationReport& report, const Console& console) {
  if (options.store_file.empty()) return absl::OkStatus();
  NS_ASSIGN_OR_RETURN(const auto store,
                      ProfileStore::Open(options.store_file, StoreMode::kReadWrite));
  const std::string text = fmt::format(
      "request: {}\nplan: {}\nglobal_batch_size: {}\nmax_time_ms: {}\n", options.request_file,
      options.plan_file, request.global_batch_size(), options.max_time_ms);
  NS_ASSIGN_OR_RETURN(const std::int64_t samples, RecordValidation(report, text, *store));
  console.err << fmt::format("{} samples recorded in {}\n", samples, options.store_file);
  return absl::OkStatus();
}

// A store that cannot be written should not cost a measurement, and a measurement that fails should
// not leave an empty store. So one that is missing is made when there is something to record.
Status CheckStoreFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const Status found = ProfileStore::Open(path, StoreMode::kReadOnly).status();
  if (found.ok()) return ProfileStore::Open(path, StoreMode::kReadWrite).status();
  if (!absl::IsNotFound(found)) return found;
  if (ProfileStore::IsRemote(path)) return absl::OkStatus();
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string directory = parent.empty() ? "." : parent.string();
  if (::access(directory.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return FailedPrecondition("{}: cannot be made: {}: {}", path, directory, std::strerror(errno));
}

StatusOr<int> RunValidate(const ValidateOptions& options, const Console& console) {
  CheckDistinctWorkers(options.workers);
  const auto request = ReadRequestFile(options.request_file);
  const auto file = ReadPlanFile(options.plan_file, request);
  if (ReportFailures(console, {request.status(), file.status()})) return kExitFailure;
  NS_ASSIGN_OR_RETURN(Prediction prediction, Predict(options, *request, *file));
  std::optional<PlanCost>& predicted = prediction.cost;
  if (!predicted) {
    console.err
        << "warning: nothing to compare with: " << options.plan_file
        << " has no prediction, as output of plan --format json has; --planner asks for one\n";
  }
  NS_RETURN_IF_ERROR(CheckStoreFile(options.store_file));
  auto report = Measure(options, *request, file->plan, prediction.cadence, console);
  if (absl::IsCancelled(report.status())) {
    ReportFailure(console, report.status());
    return kExitInterrupted;
  }
  NS_RETURN_IF_ERROR(report.status());
  if (predicted) {
    if (report->input_dist != InputDistUse::kExposed && LeaveOutInputDist(*predicted)) {
      report->notes.push_back("the distribution of ids is left out of the predicted totals");
    }
    if (report->input_dist == InputDistUse::kExposed && !HasInputDist(*predicted)) {
      report->notes.push_back(
          "the distribution of ids is measured, but not in the prediction, which is of a request "
          "without pipeline_type");
    }
    if (auto note = OtherBackendsNote(report->measured_with(), predicted->measured_with)) {
      report->notes.push_back(*std::move(note));
    }
  }
  const Status recorded = Record(options, *request, *report, console);
  const int written = WriteAnswer(console, options.output, ValidationOf(*report, predicted),
                                  [&](const auto&, const TextStyle& style) {
                                    return ValidationAsTable(*report, predicted, style);
                                  });
  NS_RETURN_IF_ERROR(recorded);
  for (const MeasuredRank& rank : report->ranks) {
    if (!rank.problem.empty()) return kExitFailure;
  }
  return written;
}

}  // namespace

void AddValidateCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto options = std::make_shared<ValidateOptions>();
  CLI::App* command = app.add_subcommand(
      "validate",
      "Run a plan on workers; predicted against measured. Exit 1 when a rank cannot run");
  command->add_option("REQUEST", options->request_file, "Request that the plan is for; -: stdin")
      ->required();
  command
      ->add_option("PLAN", options->plan_file,
                   "JSON: output of plan --format json or torchrec, or a bare plan; -: stdin")
      ->required();
  AddWorkersOption(*command, options->workers);
  AddTlsOptions(*command, options->tls);
  command
      ->add_option("--planner", options->planner,
                   "Planner that predicts and checks; default: the prediction in PLAN")
      ->type_name("HOST:PORT")
      ->check(CheckAddress);
  AddModelOption(*command, options->model, "Cost model of --planner; default: the request's");
  InRange(command->add_option("--max-time-ms", options->max_time_ms,
                              "Longest time for each measured series"),
          std::int64_t{1}, std::int64_t{600'000})
      ->capture_default_str();
  command->add_option("--store", options->store_file,
                      "Profile store that gets what was measured, as sweeps named \"validation\"; "
                      "made when missing");
  AddFormatOption(*command, options->output);
  AddWideOption(*command, options->output);
  WhenChosen(*command, options, RunValidate, console, exit_code);
}

}  // namespace neuroshard
