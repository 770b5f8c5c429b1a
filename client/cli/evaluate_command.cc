#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>

#include "client/cli/commands.h"
#include "client/cli/cost_table.h"
#include "client/cli/format_option.h"
#include "client/cli/input_file.h"
#include "client/cli/plan_report_text.h"
#include "client/cli/planner_options.h"
#include "client/stub/planner_client.h"
#include "common/cli/exit_code.h"
#include "common/codec/message_text.h"

namespace neuroshard {
namespace {

struct EvaluateOptions {
  std::string request_file;
  std::string plan_file;
  PlannerOptions planner;
  std::string model;
  std::string format;
  Detail detail = Detail::kShort;
};

std::string EvaluationAsTable(const v1::EvaluatePlanResponse& response, int num_tables,
                              const TextStyle& style) {
  std::string table =
      Lines(BasisLine(response.price_basis(), response.cost().measured_with()), style);
  std::string text;
  if (response.has_cost()) {
    table += CostTable(response.cost(), style);
    text += fmt::format("{}, model {} version {}{}\n", CostText(response.cost()),
                        response.cost_model().name(), response.cost_model().version(),
                        BatchText(response.global_batch_size(), response.cost().ranks_size()));
    text += HostMemoryLines(response.cost());
  }
  if (response.has_lower_bound()) text += BoundLine(response.lower_bound(), style.detail);
  if (response.has_analytic_cost_ms()) {
    text += AnalyticLine(response.analytic_cost_ms(), response.cost().measured_with());
  }
  if (response.has_migration()) text += MigrationLine(response.migration());
  text = table + Lines(text, style);
  if (!response.explanations().empty()) {
    text += ExplanationTable(response.explanations(), num_tables,
                             response.cost().embedding_cost_ms(), style);
  }
  for (const std::string& warning : response.warnings()) {
    text += Lines("warning: " + warning + '\n', style);
  }
  if (response.legal()) return text + "legal\n";
  text += fmt::format("illegal: breaks {} {}\n", response.violations_size(),
                      response.violations_size() == 1 ? "rule" : "rules");
  for (const v1::PlanViolation& violation : response.violations()) {
    text += Lines(fmt::format("  {}: {}\n", violation.field(), violation.description()), style);
  }
  return text;
}

int RunEvaluate(const EvaluateOptions& options, const Console& console) {
  auto request = ReadRequestFile(options.request_file);
  auto plan = ReadPlanFile(options.plan_file, request);
  if (!request.ok() || !plan.ok()) {
    return ReportFailures(console, {request.status(), plan.status()});
  }
  v1::EvaluatePlanRequest question;
  *question.mutable_request() = *std::move(request);
  *question.mutable_plan() = std::move(plan->plan);
  OverrideModel(options.model, *question.mutable_request());
  const auto response = PlannerClient(options.planner.address, options.planner.policy(console.err))
                            .EvaluatePlan(question);
  if (!response.ok()) return ReportFailure(console, response.status());
  const std::string text = options.format == "json"
                               ? MessageToJson(*response) + '\n'
                               : EvaluationAsTable(*response, question.plan().tables_size(),
                                                   console.Style(options.detail));
  const int written = WriteResult(console, "", text);
  return response->legal() ? written : kExitFailure;
}

}  // namespace

void AddEvaluateCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto options = std::make_shared<EvaluateOptions>();
  CLI::App* command = app.add_subcommand(
      "evaluate", "Check and price a plan made elsewhere; exit 1 when it breaks a rule");
  command->add_option("REQUEST", options->request_file, "Request that the plan is for; -: stdin")
      ->required();
  command
      ->add_option("PLAN", options->plan_file,
                   "JSON: output of plan --format json or torchrec, or a bare plan; -: stdin")
      ->required();
  AddPlannerOptions(*command, options->planner);
  AddModelOption(*command, options->model, "Cost model; default: the request's");
  AddFormatOption(*command, options->format,
                  "Form of the answer; json is the EvaluatePlanResponse");
  AddWideOption(*command, options->detail);
  command->callback(
      [options, &console, exit_code] { *exit_code = RunEvaluate(*options, console); });
}

}  // namespace neuroshard
