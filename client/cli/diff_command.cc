#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "client/cli/command_options.h"
#include "client/cli/commands.h"
#include "client/cli/input_file.h"
#include "client/cli/plan_diff.h"
#include "client/cli/plan_from_torchrec.h"
#include "common/base/in_file.h"
#include "common/cli/exit_code.h"
#include "common/codec/plan_codec.h"
#include "common/codec/table_codec.h"

namespace neuroshard {
namespace {

struct DiffOptions {
  std::string before_file;
  std::string after_file;
  std::string request_file;
  PlannerOptions planner;
  std::string model;
  OutputOptions output;
};

// One side: what the file says.
struct Side {
  std::string file;
  PlanFile content;
  Plan plan;
};

// `request` and `other` complete a plan in TorchRec's form.
StatusOr<Side> ReadSide(const std::string& path, const StatusOr<v1::ShardPlanRequest>& request,
                        const StatusOr<PlanFile>& other) {
  Side side{path, {}, {}};
  NS_ASSIGN_OR_RETURN(side.content, ReadPlanFile(path, request));
  if (side.content.is_torchrecs && other.ok()) CompleteReplicas(other->plan, side.content.plan);
  Violations violations;
  side.plan = DecodePlanAt("plan", side.content.plan, violations);
  CheckUniqueNames(side.content.plan.tables(), "plan.tables", violations);
  CheckTilings("plan", side.content.plan, side.plan, violations);
  if (side.content.cost) CheckCosts("cost", *side.content.cost, violations);
  NS_RETURN_IF_ERROR(InFile(path, violations.ToStatus()));
  if (side.plan.tables.empty()) return InvalidArgument("{}: a plan without tables", path);
  return side;
}

// The side's plan under the request; what it breaks becomes a note. A plan that cannot be priced is
// an error: it is no plan of this request.
Status PriceSide(const PlannerClient& planner, const Side& side, v1::ShardPlanRequest& request,
                 bool after, v1::DiffAnswer& diff) {
  NS_ASSIGN_OR_RETURN(const v1::EvaluatePlanResponse answer,
                      planner.EvaluatePlan(request, side.content.plan));
  if (!answer.has_cost()) {
    return InvalidArgument(
        "{} is no plan of the request: {}: {}{}", side.file,
        answer.violations_size() > 0 ? answer.violations(0).field() : "plan",
        answer.violations_size() > 0 ? answer.violations(0).description() : "it cannot be priced",
        answer.violations_size() > 1 ? fmt::format(" (and {} more)", answer.violations_size() - 1)
                                     : "");
  }
  AddCost(DecodePlanCost(answer.cost()), after, diff);
  diff.set_price_basis(answer.price_basis().text());
  // The other side by the same version.
  AskForModelsOf(answer.cost_model(), answer.price_basis(), request);
  if (!answer.legal()) {
    diff.add_notes(fmt::format("{} breaks {} of the request, first: {}: {}", side.file,
                               Counted(answer.violations_size(), "rule"),
                               answer.violations(0).field(), answer.violations(0).description()));
  }
  return absl::OkStatus();
}

// Weights' types, as far as a request gives them; whether it is right is the planner's to say.
std::vector<Table> TablesOfRequest(const v1::ShardPlanRequest& request) {
  std::vector<Table> tables;
  for (const v1::Table& message : request.tables()) {
    Table& table = tables.emplace_back();
    table.name = message.name();
    table.module = message.module();
    table.weight_dtype = FromText<DataType>(message.weight_dtype()).value_or(DataType::kFp32);
  }
  return tables;
}

// What the files say their plans cost.
void TakeCostsOfFiles(const Side& before, const Side& after, v1::DiffAnswer& diff) {
  for (const Side* side : {&before, &after}) {
    if (side->content.cost) AddCost(DecodePlanCost(*side->content.cost), side == &after, diff);
  }
  const v1::CostModelRef& a = before.content.cost_model;
  const v1::CostModelRef& b = after.content.cost_model;
  if (!before.content.cost || !after.content.cost) {
    diff.add_notes("not both files say what their plan costs; --request has them priced");
  } else if (a.name() != b.name() || a.version() != b.version()) {
    diff.add_notes(fmt::format(
        "the costs are of different models, {} version {} and {} version {}, and do not compare; "
        "--request has both plans priced by one",
        a.name(), a.version(), b.name(), b.version()));
  } else {
    diff.set_price_basis(after.content.price_basis.text());
  }
}

StatusOr<int> RunDiff(const DiffOptions& options, const Console& console) {
  std::error_code unknown;
  if (options.before_file == options.after_file ||
      std::filesystem::equivalent(options.before_file, options.after_file, unknown)) {
    console.err << "BEFORE and AFTER are the same file, " << options.after_file << '\n';
    return kExitUsage;
  }
  auto request = options.request_file.empty()
                     ? StatusOr<v1::ShardPlanRequest>(v1::ShardPlanRequest())
                     : ReadRequestFile(options.request_file);
  auto before = ReadSide(options.before_file, request, ReadPlanFile(options.after_file));
  auto after = ReadSide(options.after_file, request, ReadPlanFile(options.before_file));
  if (ReportFailures(console, {before.status(), after.status(), request.status()})) {
    return kExitFailure;
  }
  NS_ASSIGN_OR_RETURN(v1::DiffAnswer diff,
                      DiffPlans(before->plan, after->plan, TablesOfRequest(*request)));
  diff.mutable_before()->set_file(options.before_file);
  diff.mutable_after()->set_file(options.after_file);
  diff.set_weights_are_known(!options.request_file.empty());
  if (options.request_file.empty()) {
    TakeCostsOfFiles(*before, *after, diff);
  } else {
    OverrideModel(options.model, *request);
    const PlannerClient planner = options.planner.Client(console.err);
    NS_RETURN_IF_ERROR(PriceSide(planner, *before, *request, false, diff));
    NS_RETURN_IF_ERROR(PriceSide(planner, *after, *request, true, diff));
  }
  if (options.output.json()) LeaveOutKernels(diff);
  return WriteAnswer(console, options.output, diff, DiffAsText);
}

}  // namespace

void AddDiffCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto options = std::make_shared<DiffOptions>();
  CLI::App* command = app.add_subcommand(
      "diff", "What changes from one plan to another: tables, bytes, cost by stage and rank");
  command
      ->add_option("BEFORE", options->before_file,
                   "JSON: output of plan --format json or torchrec, or a bare plan")
      ->required();
  command->add_option("AFTER", options->after_file, "The same, of the other plan")->required();
  CLI::Option* request = command->add_option(
      "--request", options->request_file,
      "Have a planner price both plans for this request; default: what the files say");
  AddPlannerOptions(*command, options->planner);
  AddModelOption(*command, options->model, "Cost model; default: the request's")->needs(request);
  AddFormatOption(*command, options->output);
  WhenChosen(*command, options, RunDiff, console, exit_code);
}

}  // namespace neuroshard
