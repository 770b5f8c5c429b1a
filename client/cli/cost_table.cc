#include "client/cli/cost_table.h"

#include <fmt/format.h>

#include "client/cli/text_table.h"
#include "common/base/bytes.h"

namespace neuroshard {

std::string CostTable(const v1::PlanCost& cost) {
  TextTable table({{"rank"},
                   {"compute_ms"},
                   {"forward_comm_ms"},
                   {"backward_comm_ms"},
                   {"total_ms"},
                   {"dims"},
                   {"memory"},
                   {"of"},
                   {"used"}});
  for (const v1::RankCost& rank : cost.ranks()) {
    const v1::MemoryUse& memory = rank.memory();
    const double share = memory.capacity_bytes() > 0
                             ? static_cast<double>(memory.total_bytes()) /
                                   static_cast<double>(memory.capacity_bytes())
                             : 0;
    table.AddRow({fmt::format("{}", rank.rank()), fmt::format("{:.3f}", rank.compute_ms()),
                  fmt::format("{:.3f}", rank.forward_comm_ms()),
                  fmt::format("{:.3f}", rank.backward_comm_ms()),
                  fmt::format("{:.3f}", rank.total_ms()), fmt::format("{}", rank.dim_sum()),
                  FormatBytes(memory.total_bytes()), FormatBytes(memory.capacity_bytes()),
                  fmt::format("{:.1f}%", share * 100)});
  }
  return table.ToString();
}

}  // namespace neuroshard
