#include "server/evaluate/rules/row_cuts.h"

#include <cstddef>
#include <numeric>

namespace neuroshard {

RowCuts::RowCuts(const PlanRequest& request) {
  for (const TableRule& rule : request.constraints.tables) {
    if (rule.row_multiple == 0) continue;
    cuts_.resize(request.tables.size());
    for (const int table : rule.tables) {
      std::int64_t& multiple = cuts_[static_cast<std::size_t>(table)].multiple;
      // Both divide the table's rows, so this does.
      multiple = multiple == 0 ? rule.row_multiple : std::lcm(multiple, rule.row_multiple);
    }
  }
}

}  // namespace neuroshard
