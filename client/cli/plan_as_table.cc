#include <fmt/format.h>

#include "client/cli/cost_table.h"
#include "client/cli/plan_comparison.h"
#include "client/cli/plan_output.h"
#include "client/cli/plan_report_text.h"

namespace neuroshard {

std::string PlanAsTable(const v1::ShardPlanResponse& response, const TextStyle& style) {
  std::string text = fmt::format(
      "{}, {} column split{}, strategy {}, search {:.1f} ms{}, model {} version {}, {} "
      "tables on {} ranks\n",
      CostText(response.cost()), response.search().splits(),
      response.search().splits() == 1 ? "" : "s", response.search().strategy(),
      response.search().search_ms(),
      response.search().time_limit_reached() ? " (cut by its time limit)" : "",
      response.cost_model().name(), response.cost_model().version(), response.plan().tables_size(),
      response.plan().world_size());
  text += ShardingLine(response.plan());
  text += HostMemoryLines(response.cost());
  if (response.has_lower_bound()) text += BoundLine(response.lower_bound(), style.detail);
  if (response.has_migration()) text += MigrationLine(response.migration());
  text = Lines(BasisLine(response.price_basis(), response.cost().measured_with()), style) +
         CostTable(response.cost(), style) + Lines(text, style);
  if (!response.explanations().empty()) {
    text += ExplanationTable(response.explanations(), response.cost().embedding_cost_ms(), style);
  }
  text += ComparisonText(response);
  for (const std::string& warning : response.warnings()) {
    text += Lines("warning: " + warning + '\n', style);
  }
  return text;
}

}  // namespace neuroshard
