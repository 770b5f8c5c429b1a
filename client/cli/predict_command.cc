#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/format_option.h"
#include "client/cli/planner_options.h"
#include "client/cli/prediction_output.h"
#include "client/cli/prediction_sets.h"
#include "client/stub/model_reference.h"
#include "client/stub/planner_client.h"
#include "common/cli/option_values.h"

namespace neuroshard {
namespace {

struct PredictOptions {
  std::string file;
  PlannerOptions planner{.timeout_s = 60};
  std::string model;
  bool together = false;
  std::vector<std::int64_t> batch_sizes;
  std::string optimizer;
  std::string format;
  Detail detail = Detail::kShort;
};

// The model that prices plans of the request, by a plan that places nothing. Empty: the input says
// no more than the question.
StatusOr<CostModelRef> ModelOfPlans(const PredictionInput& input, const PlannerClient& planner) {
  const auto* request = std::get_if<v1::ShardPlanRequest>(&input);
  if (request == nullptr || !request->cost_model().name().empty()) return CostModelRef();
  v1::EvaluatePlanRequest question;
  *question.mutable_request() = *request;
  NS_ASSIGN_OR_RETURN(const v1::EvaluatePlanResponse response, planner.EvaluatePlan(question));
  return CostModelRef{response.cost_model().name(), response.cost_model().version()};
}

StatusOr<std::string> Predict(const PredictOptions& options, const Console& console) {
  NS_ASSIGN_OR_RETURN(const PredictionInput input, ReadPredictionFile(options.file));
  PredictionConditions conditions{options.batch_sizes, FromText<Optimizer>(options.optimizer)};
  NS_ASSIGN_OR_RETURN(
      PredictionQuestion question,
      MakePredictionQuestion(input, options.together ? TableSets::kTogether : TableSets::kEachAlone,
                             conditions));
  const PlannerClient planner(options.planner.address, options.planner.policy(console.err));
  if (!options.model.empty()) {
    question.request.cost_model = *ParseModelReference(options.model);
  } else {
    NS_ASSIGN_OR_RETURN(const CostModelRef of_plans, ModelOfPlans(input, planner));
    if (!of_plans.name.empty()) question.request.cost_model = of_plans;
  }
  NS_ASSIGN_OR_RETURN(const v1::PredictComputeResponse response,
                      planner.PredictCompute(EncodePredictionRequest(question.request)));
  if (static_cast<std::size_t>(response.predictions_size()) != question.request.sets.size()) {
    return Internal("the planner answered {} of {} questions", response.predictions_size(),
                    question.request.sets.size());
  }
  for (const std::string& warning : question.warnings) {
    console.err << "warning: " << warning << '\n';
  }
  if (options.format != "json")
    return PredictionsAsTable(question.request, response, console.Style(options.detail));
  for (const std::string& warning : response.warnings()) {
    console.err << "warning: " << warning << '\n';
  }
  return PredictionsAsJson(question.request, response);
}

int RunPredict(const PredictOptions& options, const Console& console) {
  const auto text = Predict(options, console);
  if (!text.ok()) return ReportFailure(console, text.status());
  return WriteResult(console, "", *text);
}

}  // namespace

void AddPredictCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto options = std::make_shared<PredictOptions>();
  CLI::App* predict = app.add_subcommand("predict", "Ask a cost model directly, without a plan");
  predict->require_subcommand(1);
  CLI::App* command = predict->add_subcommand(
      "compute", "What one device computes on tables, or on sets of shards, and how sure that is");
  command
      ->add_option("FILE", options->file,
                   "Request whose tables are priced, or a PredictComputeRequest (`sets`); YAML, or "
                   "JSON when the name ends in .json; -: stdin")
      ->required();
  AddPlannerOptions(*command, options->planner);
  AddModelOption(*command, options->model, "Cost model; default: the file's");
  command->add_flag("--together", options->together,
                    "All tables of the request as one set, instead of each alone");
  InRange(command->add_option("--batch-size", options->batch_sizes,
                              "Batch sizes, comma-separated; default: the file's"),
          std::int64_t{1}, std::int64_t{1} << 30)
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--optimizer", options->optimizer, "Optimizer; default: the file's")
      ->check(OneWordOf<Optimizer>());
  AddFormatOption(*command, options->format,
                  "Form of the answer; json is the PredictComputeResponse and the sets");
  AddWideOption(*command, options->detail);
  command->callback([options, &console, exit_code] { *exit_code = RunPredict(*options, console); });
}

}  // namespace neuroshard
