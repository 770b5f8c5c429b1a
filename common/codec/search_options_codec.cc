#include "common/codec/search_options_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "common/codec/field_check.h"
#include "common/codec/field_limits.h"
#include "common/codec/message_fields.h"

namespace neuroshard {

NS_FIELDS(DistributedEmbeddingsOptions, column_slice_threshold_elements,
          row_slice_threshold_elements, data_parallel_threshold_elements,
          gpu_embedding_size_elements);
NS_FIELDS(HugeCtrOptions, bandwidth_ratio, work_ratio, data_parallel_threshold_gb, iterations,
          hierarchical);
NS_FIELDS(PlanGoal, measure, tolerance);
// But for the time budget and the goals, and for the objective and the effort, which are left out at
// their defaults.
NS_FIELDS(SearchOptions, strategy, beam_width, num_candidates, max_length, search_steps, seed,
          max_threads, refine_steps, explain);

namespace {

constexpr std::int64_t kMaxTimeBudgetMs = 3'600'000;
constexpr std::int64_t kMaxSteps = std::int64_t{1} << 60;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 62;
constexpr double kMaxRatio = 1e6;

DistributedEmbeddingsOptions DecodeDistributedEmbeddings(
    const v1::DistributedEmbeddingsOptions& message, Violations& violations) {
  const FieldCheck check("search.distributed_embeddings", violations);
  const auto options = TakeFields<DistributedEmbeddingsOptions>(message, check);
  ForEachField(options, [&check](const char* name, const std::optional<std::int64_t>& elements) {
    if (elements) check.InRange(name, *elements, 1, kMaxElements);
  });
  return options;
}

HugeCtrOptions DecodeHugeCtr(const v1::HugeCtrOptions& message, Violations& violations) {
  const FieldCheck check("search.hugectr", violations);
  const auto options = TakeFields<HugeCtrOptions>(message, check);
  check.InRange("bandwidth_ratio", options.bandwidth_ratio, 1 / kMaxRatio, kMaxRatio);
  check.InRange("work_ratio", options.work_ratio, 1 / kMaxRatio, kMaxRatio);
  check.InRange("data_parallel_threshold_gb", options.data_parallel_threshold_gb, 0.0, kMaxRatio);
  check.InRange("iterations", std::int64_t{options.iterations}, 1, 100'000);
  return options;
}

// Into `options`, whose strategy and objective are decoded.
void DecodeGoals(const v1::SearchOptions& message, SearchOptions& options, const FieldCheck& check,
                 Violations& violations) {
  constexpr int kMostGoals = static_cast<int>(kWords<PlanMeasure>.size());
  if (message.goals().empty()) return;
  if (message.goals_size() < 2 || message.goals_size() > kMostGoals) {
    check.Fail("goals",
               fmt::format("must be none, or 2 to {}: cost and what comes after it, got {}",
                           kMostGoals, message.goals_size()));
  }
  if (options.strategy != kObeysConstraints || options.objective != PlanObjective::kMaxOfMeans) {
    check.Fail("goals", fmt::format("are for the strategy '{}' with the objective '{}'",
                                    kObeysConstraints, ToText(PlanObjective::kMaxOfMeans)));
  }
  for (int i = 0; i < std::min(message.goals_size(), kMostGoals); ++i) {
    const FieldCheck of_goal(fmt::format("search.goals[{}]", i), violations);
    const std::size_t before = violations.count();
    const auto goal = TakeFields<PlanGoal>(message.goals(i), of_goal, AbsentWord::kFault);
    of_goal.InRange("tolerance", goal.tolerance, 0.0, 1.0);
    if (violations.count() > before) continue;
    if ((i == 0) != (goal.measure == PlanMeasure::kCost)) {
      of_goal.Fail("measure", i == 0 ? "the first must be cost" : "cost can only be the first");
    }
    const auto is_same = [&](const PlanGoal& other) { return other.measure == goal.measure; };
    if (i > 0 && std::any_of(options.goals.begin(), options.goals.end(), is_same)) {
      of_goal.Fail("measure", fmt::format("'{}' is a goal already", ToText(goal.measure)));
    }
    options.goals.push_back(goal);
  }
}

}  // namespace

SearchOptions DecodeSearchOptions(const v1::SearchOptions& message, Violations& violations) {
  const FieldCheck check("search", violations);
  auto options = TakeFields<SearchOptions>(message, check);
  check.IsOneOf("strategy", options.strategy, kStrategyNames);
  check.InRange("beam_width", std::int64_t{options.beam_width}, 1, 64);
  check.InRange("num_candidates", std::int64_t{options.num_candidates}, 1, 1000);
  check.InRange("max_length", std::int64_t{options.max_length}, 0, 1000);
  check.InRange("search_steps", std::int64_t{options.search_steps}, 1, 101);
  check.InRange("max_threads", std::int64_t{options.max_threads}, 1, kMaxSearchThreads);
  if (message.has_time_budget_ms()) {
    check.InRange("time_budget_ms", message.time_budget_ms(), 0, kMaxTimeBudgetMs);
    options.time_budget = std::chrono::milliseconds(message.time_budget_ms());
  }
  if (options.refine_steps) check.InRange("refine_steps", *options.refine_steps, 0, kMaxSteps);
  options.distributed_embeddings =
      DecodeDistributedEmbeddings(message.distributed_embeddings(), violations);
  options.hugectr = DecodeHugeCtr(message.hugectr(), violations);
  options.objective =
      check.WordOrDefault("objective", message.objective(), PlanObjective::kMaxOfMeans);
  options.effort = check.WordOrDefault("effort", message.effort(), SearchEffort::kDefault);
  if (options.objective == PlanObjective::kMeanOfMax && options.strategy != kObeysConstraints) {
    check.Fail("objective", fmt::format("'{}' does not know mean_of_max; '{}' does",
                                        options.strategy, kObeysConstraints));
  }
  DecodeGoals(message, options, check, violations);
  return options;
}

v1::SearchOptions EncodeSearchOptions(const SearchOptions& options) {
  v1::SearchOptions message;
  PutFields(options, message);
  if (options.time_budget) message.set_time_budget_ms(options.time_budget->count());
  if (options.distributed_embeddings != DistributedEmbeddingsOptions{}) {
    PutFields(options.distributed_embeddings, *message.mutable_distributed_embeddings());
  }
  if (options.hugectr != HugeCtrOptions{}) PutFields(options.hugectr, *message.mutable_hugectr());
  if (options.objective != PlanObjective::kMaxOfMeans) {
    message.set_objective(std::string(ToText(options.objective)));
  }
  if (options.effort != SearchEffort::kDefault) {
    message.set_effort(std::string(ToText(options.effort)));
  }
  for (const PlanGoal& goal : options.goals) PutFields(goal, *message.add_goals());
  return message;
}

}  // namespace neuroshard
