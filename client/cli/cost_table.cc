#include "client/cli/cost_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/text_table.h"
#include "common/base/bytes.h"

namespace neuroshard {

std::string IntervalText(const v1::CostInterval& interval) {
  return fmt::format("{:.3f}..{:.3f}", interval.low_ms(), interval.high_ms());
}

std::string CostTable(const v1::PlanCost& cost) {
  // Shown only where some rank has one.
  const bool intervals = std::any_of(cost.ranks().begin(), cost.ranks().end(),
                                     [](const auto& rank) { return rank.has_total_interval(); });
  std::vector<TextTable::Column> columns = {
      {"rank"}, {"compute_ms"}, {"forward_comm_ms"}, {"backward_comm_ms"}, {"total_ms"}};
  if (intervals) {
    columns.push_back({fmt::format("total_ms {:.0f}%", 100 * cost.interval_coverage())});
  }
  for (const char* title : {"dims", "memory", "of", "used"}) columns.push_back({title});
  TextTable table(std::move(columns));
  for (const v1::RankCost& rank : cost.ranks()) {
    const v1::MemoryUse& memory = rank.memory();
    const double share = memory.capacity_bytes() > 0
                             ? static_cast<double>(memory.total_bytes()) /
                                   static_cast<double>(memory.capacity_bytes())
                             : 0;
    std::vector<std::string> cells = {
        fmt::format("{}", rank.rank()), fmt::format("{:.3f}", rank.compute_ms()),
        fmt::format("{:.3f}", rank.forward_comm_ms()),
        fmt::format("{:.3f}", rank.backward_comm_ms()), fmt::format("{:.3f}", rank.total_ms())};
    if (intervals) {
      cells.push_back(rank.has_total_interval() ? IntervalText(rank.total_interval()) : "-");
    }
    cells.insert(cells.end(),
                 {fmt::format("{}", rank.dim_sum()), FormatBytes(memory.total_bytes()),
                  FormatBytes(memory.capacity_bytes()), fmt::format("{:.1f}%", share * 100)});
    table.AddRow(std::move(cells));
  }
  return table.ToString();
}

std::string CostText(const v1::PlanCost& cost) {
  std::string text = fmt::format("cost {:.3f} ms", cost.embedding_cost_ms());
  if (!cost.has_interval()) return text;
  return text + fmt::format(", {:.0f}% within {}", 100 * cost.interval_coverage(),
                            IntervalText(cost.interval()));
}

}  // namespace neuroshard
