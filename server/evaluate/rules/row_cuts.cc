#include "server/evaluate/rules/row_cuts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <numeric>

#include "common/domain/memory_use.h"

namespace neuroshard {
std::vector<std::int64_t> RowWeights(const PlanRequest& request, RowProportion proportion) {
  // Speeds are written as decimals, whose proportions stay exact so.
  constexpr double kSpeedUnits = 1e9;
  const bool by_memory = proportion == RowProportion::kMemory;
  if (by_memory && !request.constraints.memory_weights.empty()) {
    return request.constraints.memory_weights;
  }
  return Mapped<std::int64_t>(request.topology.devices, [&](const Device& device) {
    return by_memory
               ? std::max<std::int64_t>(
                     0, device.memory_bytes - ReserveBytes(request.memory, device.memory_bytes))
               : std::llround(device.compute_speed * kSpeedUnits);
  });
}

void KeepRowWeights(const PlanRequest& original, PlanRequest& request) {
  const auto by_memory = [](const TableRule& rule) {
    return rule.row_proportion == RowProportion::kMemory;
  };
  if (std::ranges::any_of(request.constraints.tables, by_memory)) {
    request.constraints.memory_weights = RowWeights(original, RowProportion::kMemory);
  }
}

RowCuts::RowCuts(const PlanRequest& request) {
  // Each made once and shared by the tables.
  std::map<RowProportion, std::shared_ptr<const std::vector<std::int64_t>>> weights;
  for (const TableRule& rule : request.constraints.tables) {
    if (rule.row_multiple == 0 && !rule.row_proportion) continue;
    cuts_.resize(request.tables.size());
    for (const int table : rule.tables) {
      RowCut& cut = cuts_[static_cast<std::size_t>(table)];
      // Both divide the table's rows, so the multiple of both does.
      if (cut.multiple == 0 || rule.row_multiple == 0) {
        cut.multiple = std::max(cut.multiple, rule.row_multiple);
      } else {
        cut.multiple = std::lcm(cut.multiple, rule.row_multiple);
      }
      if (!rule.row_proportion) continue;
      if (cut.proportion) {
        cut.contradictory = cut.contradictory || cut.proportion != rule.row_proportion;
        continue;
      }
      cut.proportion = rule.row_proportion;
      auto& shared = weights[*rule.row_proportion];
      if (shared == nullptr) {
        shared = std::make_shared<const std::vector<std::int64_t>>(
            RowWeights(request, *rule.row_proportion));
      }
      cut.weights = shared;
    }
  }
}

}  // namespace neuroshard
