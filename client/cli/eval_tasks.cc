#include "client/cli/eval_tasks.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "client/cli/command_options.h"
#include "client/cli/commands.h"
#include "client/stub/planner_client.h"
#include "common/base/bytes.h"
#include "common/cli/exit_code.h"
#include "common/cli/option_values.h"
#include "common/codec/request_codec.h"
#include "common/codec/table_files.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {
namespace {

// "-" when no task is solved by both.
std::string CostRatio(const v1::TasksOfStrategy& result, const v1::TasksOfStrategy& reference) {
  double cost_ms = 0;
  double reference_ms = 0;
  for (int i = 0; i < std::min(result.tasks_size(), reference.tasks_size()); ++i) {
    if (!result.tasks(i).solved() || !reference.tasks(i).solved()) continue;
    cost_ms += result.tasks(i).cost_ms();
    reference_ms += reference.tasks(i).cost_ms();
  }
  return reference_ms > 0 ? Cell(cost_ms / reference_ms) : "-";
}

struct EvalTasksOptions {
  std::string tables_file;
  std::string tasks_file;
  int num_devices = 0;
  double memory_gib = 0;
  std::string model;
  std::vector<std::string> strategies;
  std::optional<std::int64_t> time_budget_ms;
  std::string effort = std::string(ToText(SearchEffort::kDefault));
  int limit = 0;
  std::int64_t batch_size = 0;
  std::uint64_t seed = 0;
  PlannerOptions planner;
  OutputOptions output;
};

v1::ShardPlanRequest RequestOf(const EvalTasksOptions& options, std::int64_t batch_size,
                               std::vector<Table> tables) {
  PlanRequest request;
  request.tables = std::move(tables);
  request.topology.devices.assign(
      static_cast<std::size_t>(options.num_devices),
      Device{0, std::llround(options.memory_gib * static_cast<double>(kGiB))});
  if (batch_size > 0) request.global_batch_size = batch_size;
  request.memory.rule = MemoryRule::kWeightsOnly;
  request.cost_model = *ParseModelReference(options.model);
  request.search.seed = options.seed;
  request.search.effort = *FromText<SearchEffort>(options.effort);
  if (options.time_budget_ms)
    request.search.time_budget = std::chrono::milliseconds(*options.time_budget_ms);
  return EncodePlanRequest(request);
}

// Whether a failure is an answer about this task, or would be the same for every task.
bool IsAboutTheTask(const Status& status) {
  return status.code() == absl::StatusCode::kFailedPrecondition ||
         status.code() == absl::StatusCode::kDeadlineExceeded ||
         status.code() == absl::StatusCode::kResourceExhausted ||
         status.code() == absl::StatusCode::kInternal;
}

StatusOr<v1::TaskAnswer> SolveTask(const PlannerClient& planner,
                                   const v1::ShardPlanRequest& request, int task) {
  v1::TaskAnswer answer;
  answer.set_task(task);
  const auto response = planner.ShardPlan(request);
  answer.set_solved(response.ok());
  if (!response.ok()) {
    if (!IsAboutTheTask(response.status())) return response.status();
    answer.set_error(Message(response.status()));
    return answer;
  }
  answer.set_cost_ms(response->cost().embedding_cost_ms());
  answer.set_splits(response->search().splits());
  answer.set_search_ms(response->search().search_ms());
  return answer;
}

// The tables of each task that is asked for. All are made before the first is solved, so that a
// wrong index in the last does not cost the answers to the others.
StatusOr<std::vector<std::vector<Table>>> TablesOfTasks(const EvalTasksOptions& options,
                                                        const std::vector<Table>& tables,
                                                        std::vector<BenchmarkTask> tasks) {
  if (options.limit > 0 && static_cast<std::size_t>(options.limit) < tasks.size())
    tasks.resize(static_cast<std::size_t>(options.limit));
  std::vector<std::vector<Table>> tables_of_tasks;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    auto task_tables = TablesOfTask(tables, tasks[t]);
    if (!task_tables.ok())
      return Annotate(task_tables.status(), fmt::format("{}: task {}", options.tasks_file, t));
    tables_of_tasks.push_back(*std::move(task_tables));
  }
  return tables_of_tasks;
}

// What a model was measured at: its one batch size, or the one of its range that is nearest to the
// benchmark's 65536. 0: not stated.
std::int64_t BatchSizeOf(const v1::GetCostModelResponse& model) {
  constexpr std::int64_t kBenchmarkBatchSize = 65536;
  const v1::MeasuredRanges& ranges = model.measured_ranges();
  if (model.global_batch_size() > 0 || ranges.max_batch_size() == 0) {
    return model.global_batch_size();
  }
  return std::clamp(kBenchmarkBatchSize, ranges.min_batch_size(), ranges.max_batch_size());
}

// Every strategy on a task before the next task, so that an interrupted look at stderr already
// compares.
StatusOr<v1::TasksAnswer> SolveAll(const EvalTasksOptions& options,
                                   std::vector<std::vector<Table>> tasks, const Console& console) {
  const PlannerClient planner = options.planner.Client(console.err);
  // Also finds out about a missing model once, rather than as a task that cannot be solved.
  const v1::CostModelRef model = EncodeModelReference(*ParseModelReference(options.model));
  NS_ASSIGN_OR_RETURN(const v1::GetCostModelResponse described, planner.GetCostModel(model));
  const std::int64_t batch_size =
      options.batch_size > 0 ? options.batch_size : BatchSizeOf(described);

  v1::TasksAnswer answer;
  for (const std::string& strategy : options.strategies) {
    answer.add_results()->set_strategy(strategy);
  }
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    v1::ShardPlanRequest request = RequestOf(options, batch_size, std::move(tasks[t]));
    console.err << fmt::format("task {}/{}", t + 1, tasks.size());
    for (v1::TasksOfStrategy& result : *answer.mutable_results()) {
      request.mutable_search()->set_strategy(result.strategy());
      StatusOr<v1::TaskAnswer> solved = SolveTask(planner, request, static_cast<int>(t));
      if (!solved.ok()) {
        console.err << std::endl;  // the error gets a line of its own
        return solved.status();
      }
      console.err << fmt::format(
          "  {} {}", result.strategy(),
          solved->solved() ? fmt::format("{:.3f} ms", solved->cost_ms()) : "unsolved");
      *result.add_tasks() = *std::move(solved);
    }
    console.err << std::endl;
  }
  Summarize(answer);
  return answer;
}

StatusOr<int> RunEvalTasks(const EvalTasksOptions& options, const Console& console) {
  const auto tables = ReadTableCsv(options.tables_file);
  const auto tasks = ReadTaskFile(options.tasks_file);
  if (ReportFailures(console, {tables.status(), tasks.status()})) return kExitFailure;
  NS_ASSIGN_OR_RETURN(auto tables_of_tasks, TablesOfTasks(options, *tables, *tasks));
  NS_ASSIGN_OR_RETURN(const auto answer, SolveAll(options, std::move(tables_of_tasks), console));
  return WriteAnswer(console, options.output, answer,
                     [&](const v1::TasksAnswer& of, const TextStyle& style) {
                       for (const v1::TasksOfStrategy& result : of.results()) {
                         for (const v1::TaskAnswer& task : result.tasks()) {
                           if (task.solved()) continue;
                           console.err << fmt::format("{}: task {} unsolved: {}\n",
                                                      result.strategy(), task.task(), task.error());
                         }
                       }
                       return TasksAsTable(of, style);
                     });
}

}  // namespace

void Summarize(v1::TasksAnswer& answer) {
  for (v1::TasksOfStrategy& result : *answer.mutable_results()) {
    double cost_ms = 0;
    double sum_ms = 0;
    std::vector<double> search_ms;
    for (const v1::TaskAnswer& task : result.tasks()) {
      if (!task.solved()) continue;
      cost_ms += task.cost_ms();
      sum_ms += task.search_ms();
      search_ms.push_back(task.search_ms());
    }
    result.set_solved(static_cast<int>(search_ms.size()));
    if (search_ms.empty()) continue;
    std::ranges::sort(search_ms);
    result.set_mean_cost_ms(cost_ms / result.solved());
    result.set_mean_search_ms(sum_ms / result.solved());
    result.set_p50_search_ms(search_ms[(search_ms.size() - 1) / 2]);
    result.set_max_search_ms(search_ms.back());
  }
}

std::string TasksAsTable(const v1::TasksAnswer& answer, const TextStyle& style) {
  using Result = v1::TasksOfStrategy;
  return TableOf<Result>()
      .Left("strategy", &Result::strategy)
      .Right("solved",
             [](const Result& of) { return fmt::format("{}/{}", of.solved(), of.tasks_size()); })
      // A statistic over solved tasks is not known where none is solved.
      .Where([](const Result& of) { return of.solved() > 0; })
      .Right("mean_cost_ms", &Result::mean_cost_ms)
      .Right("cost_ratio", [&](const Result& of) { return CostRatio(of, answer.results(0)); })
      .Right("p50_search_ms", &Result::p50_search_ms)
      .Right("mean_search_ms", &Result::mean_search_ms, style.wide())
      .Right("max_search_ms", &Result::max_search_ms, style.wide())
      .ToString(answer.results(), style);
}

void AddEvalTasksCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto options = std::make_shared<EvalTasksOptions>();
  CLI::App* command = app.add_subcommand(
      "eval-tasks", "Plan every task of a NeuroShard benchmark file with several strategies");
  command->add_option("--tables", options->tables_file, "CSV of tables")->required();
  command
      ->add_option("--tasks", options->tasks_file, "Tasks, one a line: table indices, space, dims")
      ->required();
  InRange(command->add_option("--devices", options->num_devices, "Devices of each task"), 1, 16'384)
      ->required();
  InRange(command->add_option("--memory-gib", options->memory_gib,
                              "Memory of each device; weights alone count against it"),
          1e-6, 1e6)
      ->required();
  AddModelOption(*command, options->model, "Cost model")->required();
  command->add_option("--strategy", options->strategies, "Strategies, comma-separated")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(OneOf({kStrategyNames.begin(), kStrategyNames.end()}));
  InRange(command->add_option("--time-budget-ms", options->time_budget_ms,
                              "Time for optimising each plan; default: the strategy's"),
          std::int64_t{0}, std::int64_t{3'600'000});
  command->add_option("--effort", options->effort, "How much refine searches")
      ->capture_default_str()
      ->check(OneWordOf<SearchEffort>());
  InRange(command->add_option("--limit", options->limit, "Only the first so many tasks"), 1,
          1'000'000);
  InRange(command->add_option("--batch-size", options->batch_size,
                              "Global batch size; default: the model's"),
          std::int64_t{1}, std::int64_t{1} << 30);
  NotNegative(command->add_option("--seed", options->seed, "Seed of everything random"))
      ->capture_default_str();
  AddPlannerOptions(*command, options->planner);
  AddFormatOption(*command, options->output);
  AddWideOption(*command, options->output);
  WhenChosen(*command, options, RunEvalTasks, console, exit_code);
}

}  // namespace neuroshard
