#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "client/cli/command_options.h"
#include "client/cli/commands.h"
#include "client/cli/input_file.h"
#include "client/cli/plan_report.h"
#include "client/stub/planner_client.h"
#include "client/validate/plan_shards.h"
#include "common/cli/option_values.h"
#include "common/codec/prediction_codec.h"
#include "common/codec/request_codec.h"
#include "neuroshard/v1/answers.pb.h"

namespace neuroshard {
namespace {

// A decoded question, and the warnings that go with it.
struct PredictionQuestion {
  PredictionRequest request;
  std::vector<std::string> warnings;  // what decoding had to assume, and what sets cannot say
};

struct PredictOptions {
  std::string file;
  PlannerOptions planner{.timeout_s = 60};
  std::string model;
  bool together = false;  // the tables of a request are one set, not one each
  // These win over the file's; empty: the file's.
  std::vector<std::int64_t> batch_sizes;
  std::string optimizer;
  OutputOptions output;
};

// The model that prices plans of the request, by a plan that places nothing. Empty: the input says
// no more than the question.
StatusOr<CostModelRef> ModelOfPlans(const PredictionInput& input, const PlannerClient& planner) {
  const auto* request = std::get_if<v1::ShardPlanRequest>(&input);
  if (request == nullptr || !request->cost_model().name().empty()) return CostModelRef();
  NS_ASSIGN_OR_RETURN(const v1::EvaluatePlanResponse response,
                      planner.EvaluatePlan(*request, v1::Plan()));
  return CostModelRef{response.cost_model().name(), response.cost_model().version()};
}

std::vector<ComputeSample> SetsOf(const PlanRequest& request, bool together) {
  std::vector<ComputeSample> sets;
  for (const Table& table : request.tables) {
    if (sets.empty() || !together) {
      ComputeSample& set = sets.emplace_back();
      set.batch_size = request.global_batch_size;
      set.optimizer = request.optimizer;
    }
    sets.back().shards.push_back(MeasuredShardOf(table, table.num_embeddings, table.embedding_dim));
  }
  return sets;
}

// The batch size is decoded with the tables, since reuse by a Zipf exponent depends on it.
StatusOr<PredictionQuestion> AskOfTables(const v1::ShardPlanRequest& asked,
                                         const PredictOptions& options) {
  PredictionQuestion question;
  const auto add = [&](const v1::ShardPlanRequest& message) -> Status {
    NS_ASSIGN_OR_RETURN(PlanRequest request, DecodePlanRequest(message, RequestLimits()));
    for (ComputeSample& set : SetsOf(request, options.together)) {
      question.request.sets.push_back(std::move(set));
    }
    question.request.request_id = request.request_id;
    question.request.cost_model = request.cost_model;
    question.warnings = std::move(request.warnings);
    if (!request.topology.host_memory_bytes.empty()) {
      question.warnings.push_back("host memory is left out: tables are priced in device memory");
    }
    if (!request.topology.ssd_bytes.empty()) {
      question.warnings.push_back("SSDs are left out: tables are priced in device memory");
    }
    for (std::string& line : LeftOutOf(request.tables)) {
      question.warnings.push_back(std::move(line));
    }
    return absl::OkStatus();
  };
  if (options.batch_sizes.empty()) NS_RETURN_IF_ERROR(add(asked));
  for (const std::int64_t batch_size : options.batch_sizes) {
    v1::ShardPlanRequest message = asked;
    SetGlobalBatchSize(batch_size, message);
    NS_RETURN_IF_ERROR(add(message));
  }
  return question;
}

StatusOr<PredictionQuestion> AskOfSets(const v1::PredictComputeRequest& message,
                                       const std::vector<std::int64_t>& batch_sizes) {
  RequestLimits limits;
  limits.max_prediction_shards = std::numeric_limits<std::int64_t>::max();  // the server's to say
  NS_ASSIGN_OR_RETURN(PredictionRequest request, DecodePredictionRequest(message, limits));
  if (batch_sizes.empty()) return PredictionQuestion{std::move(request), {}};
  const std::vector<ComputeSample> sets = std::exchange(request.sets, {});
  for (const std::int64_t batch_size : batch_sizes) {
    for (ComputeSample set : sets) {
      set.batch_size = batch_size;
      request.sets.push_back(std::move(set));
    }
  }
  return PredictionQuestion{std::move(request), {}};
}

// All sets at the first batch size, then all at the next. Of a request: whole tables, at its global
// batch size and optimizer. INVALID_ARGUMENT lists every faulty field, or says that the sets of a
// file cannot be taken together.
StatusOr<PredictionQuestion> MakePredictionQuestion(const PredictionInput& input,
                                                    const PredictOptions& options) {
  StatusOr<PredictionQuestion> question;
  if (const auto* request = std::get_if<v1::ShardPlanRequest>(&input)) {
    question = AskOfTables(*request, options);
  } else if (options.together) {
    return InvalidArgument("--together is for the tables of a request; this file lists its sets");
  } else {
    question = AskOfSets(std::get<v1::PredictComputeRequest>(input), options.batch_sizes);
  }
  const auto optimizer = FromText<Optimizer>(options.optimizer);
  if (question.ok() && optimizer) {
    for (ComputeSample& set : question->request.sets) set.optimizer = *optimizer;
  }
  return question;
}

// The response with the sets that it is of; messages of answers.proto have its fields' numbers.
v1::PredictionAnswer AnswerOf(const PredictionRequest& request,
                              const v1::PredictComputeResponse& response) {
  v1::PredictionAnswer answer;
  answer.ParseFromString(response.SerializeAsString());
  for (int i = 0; i < answer.predictions_size(); ++i) {
    const ComputeSample& set = request.sets[static_cast<std::size_t>(i)];
    v1::PredictedSet& predicted = *answer.mutable_predictions(i);
    for (const MeasuredShard& shard : set.shards) predicted.add_tables(shard.table);
    predicted.set_batch_size(set.batch_size);
    predicted.set_optimizer(std::string(ToText(set.optimizer)));
  }
  return answer;
}

// "users", or "users, items and 3 more".
std::string NamesOf(const v1::PredictedSet& set) {
  constexpr int kNamed = 2;
  std::string names;
  for (int i = 0; i < std::min(kNamed, set.tables_size()); ++i) {
    const std::string& name = set.tables(i);
    names += fmt::format("{}{}", i == 0 ? "" : ", ", name.empty() ? "(no name)" : name);
  }
  if (set.tables_size() > kNamed) names += fmt::format(" and {} more", set.tables_size() - kNamed);
  return names;
}

// A line for each set, below what the model rests on; then the model and warnings. "-" for what the
// model does not tell apart.
std::string PredictionsAsTable(const v1::PredictionAnswer& answer, const TextStyle& style) {
  using Set = v1::PredictedSet;
  const auto& sets = answer.predictions();
  TableOf<Set> table;
  int position = 0;
  table.Right("set", [&](const Set&) { return position++; })
      .Right("batch_size", &Set::batch_size)
      .Left("optimizer", &Set::optimizer)
      .Right("forward_ms", IfGiven(&Set::has_forward_ms, &Set::forward_ms), style.wide())
      .Right("backward_ms", IfGiven(&Set::has_backward_ms, &Set::backward_ms), style.wide())
      .Right("total_ms", &Set::total_ms)
      .Right(
          fmt::format("{:.0f}% within", 100 * answer.interval_coverage()),
          [](const Set& of) {
            return of.has_total_interval() ? IntervalText(of.total_interval()) : "-";
          },
          answer.interval_coverage() > 0)
      .Left("tables", NamesOf);
  return Lines(BasisLine(answer.price_basis(), answer.measured_with()), style) +
         table.ToString(sets, style) +
         fmt::format("model {} version {}\n", answer.cost_model().name(),
                     answer.cost_model().version()) +
         WarningLines(answer.warnings(), style);
}

StatusOr<v1::PredictionAnswer> Predict(const PredictOptions& options, const Console& console) {
  NS_ASSIGN_OR_RETURN(const PredictionInput input, ReadPredictionFile(options.file));
  NS_ASSIGN_OR_RETURN(PredictionQuestion question, MakePredictionQuestion(input, options));
  const PlannerClient planner = options.planner.Client(console.err);
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
  console.err << WarningLines(question.warnings, kUnwrapped);
  if (options.output.json()) console.err << WarningLines(response.warnings(), kUnwrapped);
  return AnswerOf(question.request, response);
}

StatusOr<int> RunPredict(const PredictOptions& options, const Console& console) {
  NS_ASSIGN_OR_RETURN(const auto answer, Predict(options, console));
  return WriteAnswer(console, options.output, answer, PredictionsAsTable);
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
  AddFormatOption(*command, options->output,
                  "Form of the answer; json is the PredictComputeResponse and the sets");
  AddWideOption(*command, options->output);
  WhenChosen(*command, options, RunPredict, console, exit_code);
}

}  // namespace neuroshard
