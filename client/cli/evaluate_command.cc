#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>

#include "client/cli/command_options.h"
#include "client/cli/commands.h"
#include "client/cli/input_file.h"
#include "client/cli/plan_report.h"
#include "common/cli/exit_code.h"

namespace neuroshard {
namespace {

struct EvaluateOptions {
  std::string request_file;
  std::string plan_file;
  PlannerOptions planner;
  std::string model;
  OutputOptions output;
};

StatusOr<int> RunEvaluate(const EvaluateOptions& options, const Console& console) {
  auto request = ReadRequestFile(options.request_file);
  auto plan = ReadPlanFile(options.plan_file, request);
  if (ReportFailures(console, {request.status(), plan.status()})) return kExitFailure;
  OverrideModel(options.model, *request);
  const int num_tables = plan->plan.tables_size();
  NS_ASSIGN_OR_RETURN(
      const auto response,
      options.planner.Client(console.err).EvaluatePlan(*std::move(request), std::move(plan->plan)));
  const int written = WriteAnswer(console, options.output, response,
                                  [&](const auto& answer, const TextStyle& style) {
                                    return EvaluationAsTable(answer, num_tables, style);
                                  });
  return response.legal() ? written : kExitFailure;
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
  AddFormatOption(*command, options->output,
                  "Form of the answer; json is the EvaluatePlanResponse");
  AddWideOption(*command, options->output);
  WhenChosen(*command, options, RunEvaluate, console, exit_code);
}

}  // namespace neuroshard
