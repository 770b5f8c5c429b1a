#include <fmt/format.h>

#include <string_view>

#include "client/cli/cost_table.h"
#include "client/cli/plan_comparison.h"
#include "client/cli/plan_output.h"
#include "client/cli/plan_report_text.h"

namespace neuroshard {

std::string PlanAsTable(const v1::ShardPlanResponse& response, const TextStyle& style) {
  const auto count = [](int number, std::string_view what) {
    return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
  };
  std::string text = fmt::format(
      "{}, {}, strategy {}, search {:.1f} ms{}, model {} version {}, {} on {}{}\n",
      CostText(response.cost()), count(response.search().splits(), "column split"),
      response.search().strategy(), response.search().search_ms(),
      response.search().time_limit_reached() ? " (cut by its time limit)" : "",
      response.cost_model().name(), response.cost_model().version(),
      count(response.plan().tables_size(), "table"), count(response.plan().world_size(), "rank"),
      BatchText(response.global_batch_size(), response.plan().world_size()));
  text += ShardingLine(response.plan());
  text += HostMemoryLines(response.cost());
  if (response.has_lower_bound()) text += BoundLine(response.lower_bound(), style.detail);
  if (response.has_analytic_cost_ms()) {
    text += AnalyticLine(response.analytic_cost_ms(), response.cost().measured_with());
  }
  if (response.has_migration()) text += MigrationLine(response.migration());
  text = Lines(BasisLine(response.price_basis(), response.cost().measured_with()), style) +
         CostTable(response.cost(), style) + Lines(text, style);
  if (!response.explanations().empty()) {
    text += ExplanationTable(response.explanations(), response.plan().tables_size(),
                             response.cost().embedding_cost_ms(), style);
  }
  text += ComparisonText(response);
  for (const std::string& warning : response.warnings()) {
    text += Lines("warning: " + warning + '\n', style);
  }
  if (!response.request_id().empty()) text += "request id " + response.request_id() + '\n';
  return text;
}

}  // namespace neuroshard
