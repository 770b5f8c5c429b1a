#include "client/cli/validate_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "client/cli/command_options.h"
#include "client/cli/commands.h"
#include "client/cli/input_file.h"
#include "client/cli/plan_report.h"
#include "client/validate/plan_shards.h"
#include "common/base/clock.h"
#include "common/base/stop_signal.h"
#include "common/base/violations.h"
#include "common/cli/exit_code.h"
#include "common/cli/option_values.h"
#include "common/codec/plan_codec.h"
#include "common/codec/request_codec.h"
#include "common/domain/backend_names.h"
#include "common/rpc/process_signals.h"
#include "common/store/profile_store.h"

namespace neuroshard {
namespace {

v1::Comparison Compare(std::optional<double> predicted_ms, std::optional<double> measured_ms,
                       const std::optional<CostInterval>& interval) {
  v1::Comparison comparison;
  if (predicted_ms) comparison.set_predicted_ms(*predicted_ms);
  if (measured_ms) comparison.set_measured_ms(*measured_ms);
  if (predicted_ms && measured_ms && *measured_ms != 0) {
    comparison.set_relative_error((*predicted_ms - *measured_ms) / *measured_ms);
  }
  if (!interval) return comparison;
  comparison.mutable_interval()->set_low_ms(interval->low_ms);
  comparison.mutable_interval()->set_high_ms(interval->high_ms);
  if (measured_ms) {
    comparison.set_inside(*measured_ms >= interval->low_ms && *measured_ms <= interval->high_ms);
  }
  return comparison;
}

// The distribution of ids is among them where it was measured.
v1::ValidatedStages StagesOf(const ValidationReport& report, std::size_t r,
                             const RankCost* predicted) {
  const MeasuredRank& measured = report.ranks[r];
  v1::ValidatedStages stages;
  const auto set = [&](v1::Comparison* stage, const auto& cost, const auto& interval,
                       std::optional<double> measured_ms) {
    *stage = predicted == nullptr ? Compare(std::nullopt, measured_ms, std::nullopt)
                                  : Compare(std::invoke(cost, *predicted), measured_ms,
                                            std::invoke(interval, predicted->intervals));
  };
  if (report.input_dist != InputDistUse::kNotMeasured) {
    set(stages.mutable_input_dist(), &RankCost::input_dist_ms, &RankIntervals::input_dist,
        measured.input_dist_ms);
  }
  set(stages.mutable_compute(), &RankCost::compute_ms, &RankIntervals::compute,
      measured.compute_ms());
  set(stages.mutable_backward_comm(), &RankCost::backward_comm_ms, &RankIntervals::backward_comm,
      measured.backward_comm_ms);
  set(stages.mutable_forward_comm(), &RankCost::forward_comm_ms, &RankIntervals::forward_comm,
      measured.forward_comm_ms);
  set(stages.mutable_total(), &RankCost::total_ms, &RankIntervals::total, report.total_ms(r));
  return stages;
}

const RankCost* RankOf(const std::optional<PlanCost>& predicted, std::size_t rank) {
  return predicted && rank < predicted->ranks.size() ? &predicted->ranks[rank] : nullptr;
}

const auto kShownPrediction =
    IfGiven(&v1::Comparison::has_predicted_ms, &v1::Comparison::predicted_ms);
const auto kShownMeasurement =
    IfGiven(&v1::Comparison::has_measured_ms, &v1::Comparison::measured_ms);
std::string ShownError(const v1::Comparison& of) {
  return of.has_relative_error() ? fmt::format("{:+.1f}%", of.relative_error() * 100) : "-";
}

// A line of the table.
struct RankStage {
  const v1::ValidatedRank* rank;
  const char* name;
  v1::Comparison comparison;
};

std::vector<RankStage> RankStages(const v1::ValidationAnswer& answer) {
  std::vector<RankStage> all;
  for (const v1::ValidatedRank& rank : answer.ranks()) {
    const v1::ValidatedStages& stages = rank.stages();
    if (stages.has_input_dist()) all.push_back({&rank, "input_dist", stages.input_dist()});
    all.insert(all.end(), {{&rank, "compute", stages.compute()},
                           {&rank, "backward_comm", stages.backward_comm()},
                           {&rank, "forward_comm", stages.forward_comm()},
                           {&rank, "total", stages.total()}});
  }
  return all;
}

// How many of the measured stages were where the model said; empty where it does not say.
std::string CoverageLine(const std::vector<RankStage>& stages, double coverage) {
  const auto count = [&](const auto& is) { return std::ranges::count_if(stages, is); };
  const auto known = count([](const RankStage& of) { return of.comparison.has_inside(); });
  if (known == 0) return "";
  return fmt::format("measured inside the model's {:.0f}% interval: {} of {}\n", 100 * coverage,
                     count([](const RankStage& of) { return of.comparison.inside(); }), known);
}

std::optional<double> MeasuredMs(const CommMeasurement& measurement) {
  if (measurement.outcome != Outcome::kOk) return std::nullopt;
  return measurement.series.median_ms;
}

// What a stage's sum is made of, the slowest rank of each; empty where all are all-to-alls.
std::string CollectiveLines(const ValidationReport& report) {
  std::string lines;
  bool others = false;
  for (const MeasuredCommSample& measured : report.comm) {
    others = others || measured.sample.collective != Collective::kAllToAll;
    std::optional<double> slowest_ms;
    for (const CommMeasurement& rank : measured.measurements) {
      if (const auto ms = MeasuredMs(rank)) slowest_ms = std::max(slowest_ms.value_or(0), *ms);
    }
    const std::string stage = measured.sample.input_dist
                                  ? measured.sample.sample_id + ':'
                                  : fmt::format("{}_comm: {}", ToText(measured.sample.direction),
                                                ToText(measured.sample.collective));
    lines += fmt::format("{} {} ms on its slowest rank\n", stage, Cell(slowest_ms));
  }
  return others ? lines : "";
}

// Says that what ran is not what the prediction forecasts: other kernels, or other collectives.
// Nothing where they are the same or one of the two does not say. A note of the report.
std::optional<std::string> OtherBackendsNote(const MeasuredWith& measured,
                                             const MeasuredWith& predicted) {
  const auto differ = [](const std::string& a, const std::string& b) {
    return !a.empty() && !b.empty() && a != b;
  };
  if (!differ(measured.backend, predicted.backend) &&
      !differ(measured.collective_backend, predicted.collective_backend)) {
    return std::nullopt;
  }
  return fmt::format("the prediction forecasts {}, measured were {}", MeasuredWithText(predicted),
                     MeasuredWithText(measured));
}

struct ValidateOptions {
  std::string request_file;
  std::string plan_file;
  ValidationOptions run;  // but for files, and the cadence of the prediction
  std::string planner;
  TlsFiles tls = {};
  std::string model;
  std::string store_file;
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
  ValidationOptions validation = options.run;
  validation.tls = options.tls.Read();
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
      options.plan_file, request.global_batch_size(), options.run.settings.max_time_ms);
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
  CheckDistinctWorkers(options.run.workers);
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

v1::ValidationAnswer ValidationOf(const ValidationReport& report,
                                  const std::optional<PlanCost>& predicted) {
  v1::ValidationAnswer answer;
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    const MeasuredRank& measured = report.ranks[r];
    v1::ValidatedRank& rank = *answer.add_ranks();
    rank.set_rank(static_cast<int>(r));
    rank.set_worker(measured.worker);
    rank.set_device(measured.device);
    rank.set_problem(measured.problem);
    *rank.mutable_stages() = StagesOf(report, r, RankOf(predicted, r));
    if (const auto ms = measured.forward_compute_ms) rank.set_measured_forward_compute_ms(*ms);
    if (const auto ms = measured.backward_compute_ms) rank.set_measured_backward_compute_ms(*ms);
    rank.set_measured_start_offset_ms(measured.start_offset_ms);
  }
  for (const MeasuredCommSample& measured : report.comm) {
    v1::ValidatedCollective& collective = *answer.add_collectives();
    if (!measured.sample.input_dist) {
      collective.set_direction(std::string(ToText(measured.sample.direction)));
    }
    collective.set_collective(std::string(CollectiveWord(measured.sample)));
    for (const CommMeasurement& rank : measured.measurements) {
      collective.add_measured_ms(MeasuredMs(rank).value_or(std::nan("")));
    }
  }
  *answer.mutable_measured_with() = EncodeMeasuredWith(report.measured_with());
  *answer.mutable_embedding_cost() =
      predicted
          ? Compare(predicted->embedding_cost_ms, report.embedding_cost_ms(), predicted->interval)
          : Compare(std::nullopt, report.embedding_cost_ms(), std::nullopt);
  answer.mutable_notes()->Assign(report.notes.begin(), report.notes.end());
  return answer;
}

std::string ValidationAsTable(const ValidationReport& report,
                              const std::optional<PlanCost>& predicted, const TextStyle& style) {
  const v1::ValidationAnswer answer = ValidationOf(report, predicted);
  const std::vector<RankStage> stages = RankStages(answer);
  const double coverage = predicted ? predicted->interval_coverage : 0;
  // "0.900..1.300", and "!" where what was measured is outside.
  const auto interval = [](const RankStage& stage) -> std::string {
    const v1::Comparison& of = stage.comparison;
    if (!of.has_interval()) return "-";
    return IntervalText(of.interval()) + (of.has_inside() && !of.inside() ? "!" : " ");
  };
  const auto shown = [](const auto& cell) {
    return [cell](const RankStage& stage) { return cell(stage.comparison); };
  };
  TableOf<RankStage> table;
  table.Right("rank", [](const RankStage& of) { return of.rank->rank(); })
      .Left("stage", &RankStage::name)
      .Right("predicted_ms", shown(kShownPrediction))
      .Right(fmt::format("{:.0f}% ", 100 * coverage), interval, coverage > 0)
      .Right("measured_ms", shown(kShownMeasurement))
      .Right("error", shown(ShownError))
      .Left(
          "device",
          [](const RankStage& of) {
            return fmt::format("{} device {}", of.rank->worker(), of.rank->device());
          },
          style.wide());
  const v1::Comparison& cost = answer.embedding_cost();
  std::string text = fmt::format("plan cost: predicted {} ms, measured {} ms, error {}\n",
                                 kShownPrediction(cost), kShownMeasurement(cost), ShownError(cost));
  text += MeasuredWithLine(report.measured_with());
  text += CoverageLine(stages, coverage);
  text += CollectiveLines(report);
  for (const v1::ValidatedRank& rank : answer.ranks()) {
    if (!rank.problem().empty()) text += fmt::format("rank {}: {}\n", rank.rank(), rank.problem());
  }
  for (const std::string& note : answer.notes()) text += "note: " + note + '\n';
  return table.ToString(stages, style) + Lines(text, style);
}

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
  AddWorkersOption(*command, options->run.workers);
  AddTlsOptions(*command, options->tls);
  command
      ->add_option("--planner", options->planner,
                   "Planner that predicts and checks; default: the prediction in PLAN")
      ->type_name("HOST:PORT")
      ->check(CheckAddress);
  AddModelOption(*command, options->model, "Cost model of --planner; default: the request's");
  InRange(command->add_option("--max-time-ms", options->run.settings.max_time_ms,
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
