#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cli/command_options.h"
#include "client/cli/commands.h"
#include "client/cli/input_file.h"
#include "client/cli/plan_comparison.h"
#include "client/cli/plan_moves.h"
#include "client/cli/plan_output.h"
#include "client/cli/plan_report.h"
#include "client/cli/what_if.h"
#include "common/base/bytes.h"
#include "common/cli/exit_code.h"
#include "common/cli/option_values.h"
#include "common/codec/plan_codec.h"
#include "common/domain/backend_names.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {
namespace {

struct PlanOptions {
  std::string request_file;
  PlannerOptions planner;
  std::string strategy;
  std::optional<std::int64_t> time_budget_ms;
  std::optional<std::uint64_t> seed;
  std::optional<std::int64_t> steps;
  std::string effort;
  std::string model;
  OutputOptions output;
  std::string device_type;
  std::string out_file;
  bool stream = false;
  bool explain = false;
  std::string objective;
  std::string request_id;
  std::string previous_file;
  std::optional<double> migration_budget_gib;
  std::vector<std::string> only_types;
  std::vector<std::string> compared;
  std::string what_if_file;
  std::string moves_file;
};

// The plan in place and what may move, from the command line over the request's.
Status OverrideMigration(const PlanOptions& options, v1::Plan previous,
                         v1::ShardPlanRequest& request) {
  if (!options.previous_file.empty()) {
    *request.mutable_migration()->mutable_previous() = std::move(previous);
  }
  const auto need_previous = [&](std::string_view option) {
    return request.has_migration()
               ? absl::OkStatus()
               : InvalidArgument(
                     "{} needs a plan to migrate from: --previous, or a migration in {}", option,
                     options.request_file);
  };
  if (options.migration_budget_gib) {
    NS_RETURN_IF_ERROR(need_previous("--migration-budget-gib"));
    request.mutable_migration()->set_budget_bytes(
        std::llround(*options.migration_budget_gib * static_cast<double>(kGiB)));
  }
  if (!options.only_types.empty()) {
    NS_RETURN_IF_ERROR(need_previous("--only-types"));
    request.mutable_migration()->mutable_only_types()->Assign(options.only_types.begin(),
                                                              options.only_types.end());
  }
  return absl::OkStatus();
}

Status Override(const PlanOptions& options, v1::Plan previous, v1::ShardPlanRequest& request) {
  if (!options.strategy.empty()) request.mutable_search()->set_strategy(options.strategy);
  if (options.time_budget_ms) request.mutable_search()->set_time_budget_ms(*options.time_budget_ms);
  if (options.seed) request.mutable_search()->set_seed(*options.seed);
  if (options.steps) request.mutable_search()->set_refine_steps(*options.steps);
  if (options.explain) request.mutable_search()->set_explain(true);
  if (!options.request_id.empty()) request.set_request_id(options.request_id);
  if (!options.effort.empty()) request.mutable_search()->set_effort(options.effort);
  if (!options.objective.empty()) request.mutable_search()->set_objective(options.objective);
  OverrideModel(options.model, request);
  return OverrideMigration(options, std::move(previous), request);
}

StatusOr<v1::ShardPlanResponse> AskForPlan(const PlanOptions& options,
                                           const v1::ShardPlanRequest& request,
                                           const Console& console) {
  const PlannerClient planner = options.planner.Client(console.err);
  if (!options.stream) return planner.ShardPlan(request);
  return planner.ShardPlanStream(request, [&console](const v1::ShardPlanUpdate& update) {
    console.err << fmt::format("progress {:3.0f}%", update.progress() * 100);
    if (update.best_cost_ms() > 0)
      console.err << fmt::format("  best {:.3f} ms", update.best_cost_ms());
    console.err << std::endl;
  });
}

// The device of TorchRec's placements where the command line states none.
std::string DeviceType(const v1::ShardPlanRequest& request, const v1::ShardPlanResponse& response,
                       const Console& console) {
  if (const std::string& stated = request.topology().compute_device(); !stated.empty()) {
    return stated;
  }
  const auto& hosts = request.topology().hosts();
  if (std::ranges::any_of(hosts, [](const auto& h) { return !h.device().empty(); })) {
    return "cuda";  // all devices that have a name are
  }
  if (BackendNameToday(response.cost().measured_with().backend()) != kNeuroshardCpu) return "cuda";
  console.err << "warning: placements say cpu, which is what the cost model was measured on; "
                 "topology.compute_device or --device-type says otherwise\n";
  return "cpu";
}

StatusOr<std::string> Format(const PlanOptions& options, const v1::ShardPlanRequest& request,
                             const v1::ShardPlanResponse& response, const Console& console) {
  const std::string& format = options.output.format;
  if (format == "torchrec") {
    const std::string device_type =
        options.device_type.empty() ? DeviceType(request, response, console) : options.device_type;
    console.err << WarningLines(TorchRecWarnings(response.plan(), request.tables(), device_type),
                                kUnwrapped);
    return PlanAsTorchRec(response.plan(), request.topology(), device_type);
  }
  if (format == "neuroshard") return PlanAsNeuroShard(response.plan());
  if (format == "hugectr") return PlanAsHugeCtr(response.plan(), request.tables());
  if (format == "distributed_embeddings") {
    return PlanAsDistributedEmbeddings(response.plan(), request.tables());
  }
  return options.output.json() ? MessageToJson(response) + '\n'
                               : PlanAsTable(response, console.Style(options.output));
}

// Exit code 1 when no topology has a plan.
StatusOr<int> RunWhatIf(const PlanOptions& options, const v1::ShardPlanRequest& request,
                        const v1::WhatIf& what_if, const Console& console) {
  const PlannerClient planner = options.planner.Client(console.err);
  NS_ASSIGN_OR_RETURN(const auto answer, AskWhatIf(planner, request, what_if));
  const int written = WriteAnswer(console, options.output, answer, WhatIfAsTable, options.out_file);
  const bool planned = std::ranges::any_of(
      answer.rows(), [](const v1::WhatIfRow& row) { return row.failure().empty(); });
  return planned ? written : kExitFailure;
}

// Writes what has to travel from the plan in place.
Status EmitMoves(const PlanOptions& options, const v1::ShardPlanRequest& request,
                 const v1::ShardPlanResponse& response, const Console& console) {
  if (options.moves_file.empty()) return absl::OkStatus();
  NS_ASSIGN_OR_RETURN(const PlanRequest decoded, DecodeRequest(request));
  NS_ASSIGN_OR_RETURN(const Plan plan, DecodePlan(response.plan()));
  NS_ASSIGN_OR_RETURN(const v1::MovesAnswer moves, MovesOf(decoded, plan));
  NS_RETURN_IF_ERROR(WriteText(console, options.moves_file, MessageToJson(moves) + '\n'));
  console.err << Lines(MovesAsText(moves), console.Style(options.output));
  return absl::OkStatus();
}

StatusOr<int> RunPlan(const PlanOptions& options, const Console& console) {
  const bool several = !options.what_if_file.empty();
  if (several && options.output.format != "table" && !options.output.json()) {
    console.err << "--what-if writes table or json, not " << options.output.format << '\n';
    return kExitUsage;
  }
  if (options.moves_file == "-" && IsStandardOutput(options.out_file)) {
    console.err << "--emit-moves - leaves no place for the plan on stdout; give it a file: --out\n";
    return kExitUsage;
  }
  auto request = ReadRequestFile(options.request_file);
  auto previous = options.previous_file.empty() ? StatusOr<PlanFile>(PlanFile())
                                                : ReadPlanFile(options.previous_file, request);
  const auto what_if =
      several ? ReadWhatIfFile(options.what_if_file) : StatusOr<v1::WhatIf>(v1::WhatIf());
  if (ReportFailures(console, {request.status(), previous.status(), what_if.status(),
                               CheckResultWritable(options.out_file),
                               CheckResultWritable(options.moves_file)})) {
    return kExitFailure;
  }
  NS_RETURN_IF_ERROR(Override(options, std::move(previous->plan), *request));
  if (!options.moves_file.empty() && !request->has_migration()) {
    return InvalidArgument(
        "--emit-moves needs a plan to move from: --previous, or a migration in {}",
        options.request_file);
  }
  if (several) return RunWhatIf(options, *request, *what_if, console);
  NS_ASSIGN_OR_RETURN(v1::ShardPlanResponse response, AskForPlan(options, *request, console));
  const PlannerClient planner = options.planner.Client(console.err);
  NS_RETURN_IF_ERROR(ComparePlans(planner, *request, options.compared, response));
  NS_RETURN_IF_ERROR(EmitMoves(options, *request, response, console));
  NS_ASSIGN_OR_RETURN(const std::string text, Format(options, *request, response, console));
  if (options.output.format != "table") {
    console.err << BasisLine(response.price_basis(), response.cost().measured_with());
    if (!options.output.json()) console.err << ComparisonText(response);
    console.err << WarningLines(response.warnings(), kUnwrapped);
  }
  return WriteResult(console, options.out_file, text);
}

}  // namespace

void AddPlanCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App* command = app.add_subcommand("plan", "Ask a planner for a sharding plan");
  command
      ->add_option("REQUEST", options->request_file,
                   "Request in YAML, or in JSON when the name ends in .json; -: stdin")
      ->required();
  AddPlannerOptions(*command, options->planner);
  command->add_option("--strategy", options->strategy, "Search strategy; default: the request's")
      ->check(OneOf({kStrategyNames.begin(), kStrategyNames.end()}));
  InRange(command->add_option("--time-budget-ms", options->time_budget_ms,
                              "Time for optimising after the first plan; default: the request's"),
          std::int64_t{0}, std::int64_t{3'600'000});
  InRange(command->add_option("--steps", options->steps,
                              "Steps of local search after which refine ends; default: the "
                              "request's, or an amount of work that depends on the request alone"),
          std::int64_t{0}, std::numeric_limits<std::int64_t>::max());
  NotNegative(command->add_option("--seed", options->seed,
                                  "Seed of everything random; default: the request's"));
  command
      ->add_option("--effort", options->effort,
                   "How much refine searches: quick, default (more as long as it pays), thorough "
                   "(for jobs that run for days); default: the request's")
      ->check(OneOf({"quick", "default", "thorough"}));
  command
      ->add_option(
          "--objective", options->objective,
          "What is made small: the costliest rank in the mean batch, or the mean of the costliest "
          "rank over batch_pooling_factors; default: the request's, else max_of_means")
      ->check(OneOf({"max_of_means", "mean_of_max"}));
  AddModelOption(*command, options->model, "Cost model; default: the request's");
  command
      ->add_option("--request-id", options->request_id,
                   "Id of this call in the planner's log and in the answer; default: the "
                   "request's, else one is made up")
      ->type_name("ID");
  command
      ->add_option("--format", options->output.format,
                   "Form of the plan; json is the ShardPlanResponse")
      ->check(
          OneOf({"table", "json", "torchrec", "neuroshard", "hugectr", "distributed_embeddings"}))
      ->capture_default_str();
  AddWideOption(*command, options->output);
  command
      ->add_option("--device-type", options->device_type,
                   "Device in torchrec placements; default: the request's topology.compute_device, "
                   "or what the cost model was measured on")
      ->check(OneOf({"cuda", "cpu"}));
  CLI::Option* what_if =
      command
          ->add_option("--what-if", options->what_if_file,
                       "Plan for each topology of this file in place of the request's, and say "
                       "what each costs. YAML: topologies: [{name: 8 x H100, topology: {hosts: "
                       "[{num_devices: 8, device: h100-sxm}]}}]; -: stdin")
          ->type_name("FILE");
  command->add_option("--out", options->out_file,
                      "Write to this file, all or nothing, instead of stdout; -: stdout");
  command
      ->add_flag("--explain", options->explain,
                 "Also say why each table got its type: the alternatives and what they cost")
      ->excludes(what_if);
  command
      ->add_option("--previous", options->previous_file,
                   "Plan in place, to move little away from: JSON, output of plan --format json, "
                   "or a bare plan; default: the request's")
      ->type_name("PLAN.json");
  InRange(command->add_option("--migration-budget-gib", options->migration_budget_gib,
                              "Most GiB of weights that may move away from the previous plan; 0: "
                              "nothing; default: the request's, or any amount"),
          0.0, 1e6);
  command
      ->add_option("--only-types", options->only_types,
                   "Sharding types whose tables in place may change ranks; all others stay as they "
                   "are; default: the request's, or any")
      ->delimiter(',')
      ->type_name("TYPE[,TYPE...]")
      ->check(OneWordOf<ShardingType>());
  command
      ->add_option(
          "--emit-moves", options->moves_file,
          "Write to this file the shards that must travel from the previous plan, in steps that "
          "keep within every rank's memory (JSON); -: stdout, with the plan in --out")
      ->type_name("FILE.json")
      ->excludes(what_if);
  AddCompareOption(*command, options->compared)->excludes(what_if);
  command->add_flag("--stream", options->stream, "Show the progress of the search on stderr")
      ->excludes(what_if);
  WhenChosen(*command, options, RunPlan, console, exit_code);
}

}  // namespace neuroshard
