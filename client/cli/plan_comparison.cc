#include "client/cli/plan_comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <utility>

#include "client/cli/command_options.h"
#include "client/cli/text_table.h"
#include "common/base/printable_text.h"
#include "common/base/similar_word.h"
#include "common/domain/plan_request.h"

namespace neuroshard {
namespace {

// The ratio from which on costs are told apart: nine of ten and more of measured plans that models
// called so far apart came in their order (bench/README.md, "In the predicted order?"); of nearer
// ones often not.
constexpr double kToldApart = 1.1;

std::string CheckStrategy(const std::string& name) {
  if (std::ranges::find(kStrategyNames, name) != kStrategyNames.end()) {
    return "";
  }
  return fmt::format("{} is no strategy{}; there are {}", Quoted(name),
                     DidYouMean(name, kStrategyNames), fmt::join(kStrategyNames, ", "));
}

bool AsksForMeanOfMax(const v1::ShardPlanRequest& request) {
  return request.search().objective() == ToText(PlanObjective::kMeanOfMax);
}

// The plan of `asked` held against the request that it was made without the constraints of.
Status Judge(const PlannerClient& planner, const v1::ShardPlanRequest& request, v1::Plan plan,
             v1::ComparedPlan& compared) {
  v1::ShardPlanRequest asked = request;
  asked.mutable_search()->clear_explain();
  NS_ASSIGN_OR_RETURN(const v1::EvaluatePlanResponse judged,
                      planner.EvaluatePlan(std::move(asked), std::move(plan)));
  compared.set_embedding_cost_ms(judged.cost().embedding_cost_ms());
  if (AsksForMeanOfMax(request) && judged.cost().has_mean_of_max_ms()) {
    compared.set_mean_of_max_ms(judged.cost().mean_of_max_ms());
  }
  compared.set_legal(judged.legal());
  *compared.mutable_violations() = judged.violations();
  return absl::OkStatus();
}

Status Compare(const PlannerClient& planner, const v1::ShardPlanRequest& request,
               const v1::PlanCost& own, v1::ComparedPlan& compared) {
  v1::ShardPlanRequest asked = request;
  asked.mutable_search()->set_strategy(compared.strategy());
  asked.mutable_search()->clear_explain();
  if (compared.strategy() != kObeysConstraints) {
    compared.set_without_constraints(request.has_constraints() || request.has_migration());
    asked.clear_constraints();
    asked.clear_migration();
    asked.mutable_search()->clear_objective();
    asked.mutable_search()->clear_goals();
  }
  NS_ASSIGN_OR_RETURN(v1::ShardPlanResponse answer, planner.ShardPlan(asked));
  compared.set_search_ms(answer.search().search_ms());
  compared.set_splits(answer.search().splits());
  NS_RETURN_IF_ERROR(Judge(planner, request, std::move(*answer.mutable_plan()), compared));
  const bool by_mean = compared.has_mean_of_max_ms() && own.has_mean_of_max_ms();
  const double own_ms = by_mean ? own.mean_of_max_ms() : own.embedding_cost_ms();
  const double ms = by_mean ? compared.mean_of_max_ms() : compared.embedding_cost_ms();
  if (own_ms > 0) compared.set_cost_ratio(ms / own_ms);
  return absl::OkStatus();
}

// NeuroShard's baselines, which cut only what has no place otherwise.
bool KeepsTablesWhole(std::string_view strategy) {
  return strategy == "random" || strategy.ends_with("_greedy");
}

// Why the plan is missing or illegal, what was cut for want of memory, and whether the model can
// tell it from the plan of cost `own`; empty: none of it.
std::string NoteOf(const v1::ComparedPlan& compared, const v1::PlanCost& own) {
  constexpr int kNamed = 3;
  if (!compared.failure().empty()) return "no plan: " + compared.failure();
  std::vector<std::string> named;
  if (compared.legal()) {
    if (KeepsTablesWhole(compared.strategy()) && compared.splits() > 0) {
      named.push_back("tables are whole, but those larger than every device halved until they fit");
    }
    const v1::CostInterval& expected = own.interval();
    const double ms = compared.embedding_cost_ms();
    const auto [less, more] = std::minmax({ms, own.embedding_cost_ms()});
    if (own.has_interval() && !compared.has_mean_of_max_ms() && less < more &&
        more < kToldApart * less && ms >= expected.low_ms() && ms <= expected.high_ms()) {
      named.push_back("the costs differ by less than the model can tell");
    }
    return fmt::format("{}", fmt::join(named, "; "));
  }
  for (int i = 0; i < std::min(kNamed, compared.violations_size()); ++i) {
    const v1::PlanViolation& violation = compared.violations(i);
    named.push_back(fmt::format("{}: {}", violation.field(), violation.description()));
  }
  return fmt::format("breaks {}: {}{}", Counted(compared.violations_size(), "rule"),
                     fmt::join(named, "; "), compared.violations_size() > kNamed ? "; ..." : "");
}

}  // namespace

CLI::Option* AddCompareOption(CLI::App& command, std::vector<std::string>& strategies) {
  return command
      .add_option("--compare", strategies,
                  "Also say what the plans of these strategies cost; those that obey no "
                  "constraints are asked without them and then held against them")
      ->delimiter(',')
      ->type_name("NAME[,NAME...]")
      ->check(CheckStrategy);
}

Status ComparePlans(const PlannerClient& planner, const v1::ShardPlanRequest& request,
                    const std::vector<std::string>& strategies, v1::ShardPlanResponse& response) {
  v1::ShardPlanRequest same_model = request;
  AskForModelsOf(response.cost_model(), response.price_basis(), same_model);
  for (const std::string& strategy : strategies) {
    v1::ComparedPlan& compared = *response.add_comparison();
    compared.set_strategy(strategy);
    const Status status = Compare(planner, same_model, response.cost(), compared);
    if (absl::IsUnavailable(status)) return status;
    if (!status.ok()) compared.set_failure(Message(status));
  }
  return absl::OkStatus();
}

std::string ComparisonText(const v1::ShardPlanResponse& response) {
  using Compared = v1::ComparedPlan;
  if (response.comparison().empty()) return "";
  const v1::PlanCost& cost = response.cost();
  std::vector<Compared> rows(1);
  rows[0].set_strategy(response.search().strategy() + " (this plan)");
  rows[0].set_embedding_cost_ms(cost.embedding_cost_ms());
  if (cost.has_mean_of_max_ms()) rows[0].set_mean_of_max_ms(cost.mean_of_max_ms());
  rows[0].set_cost_ratio(1);
  rows[0].set_search_ms(response.search().search_ms());
  rows[0].set_legal(true);
  rows.insert(rows.end(), response.comparison().begin(), response.comparison().end());
  TableOf<Compared> table;
  table.Left("compared", &Compared::strategy)
      .Where([](const Compared& of) { return of.failure().empty(); })
      .Right("cost_ms", &Compared::embedding_cost_ms)
      .Right("mean_of_max_ms", IfGiven(&Compared::has_mean_of_max_ms, &Compared::mean_of_max_ms),
             std::ranges::any_of(response.comparison(), &Compared::has_mean_of_max_ms))
      .Right("ratio", IfGiven(&Compared::has_cost_ratio, &Compared::cost_ratio))
      .Right("search_ms", [](const Compared& of) { return fmt::format("{:.1f}", of.search_ms()); })
      .Left("legal", [](const Compared& of) { return of.legal() ? "yes" : "no"; })
      .Where(nullptr)
      .Left("constraints",
            [](const Compared& of) { return of.without_constraints() ? "ignored" : ""; });
  TableNotes notes;
  for (const Compared& compared : response.comparison()) {
    notes.Add(compared.strategy(), NoteOf(compared, cost));
  }
  return table.ToString(rows) + notes.ToString();
}

}  // namespace neuroshard
