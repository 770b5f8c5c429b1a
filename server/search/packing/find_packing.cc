#include "server/search/packing/find_packing.h"

#include <optional>
#include <utility>

#include "common/base/failure_reason.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/feasibility/find_feasible.h"
#include "server/search/packing/packers.h"

namespace neuroshard {
namespace {

ExactPacking PackWholeTablesFeasibly(PlanRequest request, const StopSignal& stop) {
  request.constraints = {};
  request.migration.reset();
  request.topology.host_memory_bytes.clear();  // a Placement is all in device memory
  const CompiledRules rules(request, {ShardingType::kTableWise});
  const Feasible feasible = FindFeasible(request, rules, stop);
  if (!feasible.plan.has_value()) return {std::nullopt, feasible.none};
  Placement placement{WholeTables(request), {}};
  for (const TablePlan& table : feasible.plan->tables) {
    placement.rank_of_piece.push_back(table.shards.front().rank);
  }
  return {std::move(placement), false};
}

}  // namespace

StatusOr<Placement> FindPacking(const PlanRequest& request, Cutting cutting,
                                const StopSignal& stop) {
  NS_RETURN_IF_ERROR(CheckPackingBounds(request, cutting));
  if (std::optional<Placement> whole = PackWholeTables(request)) return *std::move(whole);
  if (cutting != Cutting::kWholeTables) {
    for (const CutOrder order : {CutOrder::kLargestTableFirst, CutOrder::kLargestGranuleFirst}) {
      if (std::optional<Placement> cut = PackCuttingColumns(request, order)) return *std::move(cut);
    }
  }
  ExactPacking exact;
  if (cutting != Cutting::kWholeTables) exact = PackColumnsExactly(request);
  if (!exact.placement.has_value() && !exact.exhausted) {
    ExactPacking whole = PackWholeTablesFeasibly(request, stop);
    if (whole.placement.has_value() || cutting == Cutting::kWholeTables) exact = std::move(whole);
  }
  if (exact.placement) return *std::move(exact.placement);
  const char* const how = PlansOf(cutting);
  if (exact.exhausted) {
    return WithReason(
        FailedPrecondition("no plan can exist{}: the tables fit into the memory of all ranks "
                           "together, but no way of distributing them keeps every rank within its "
                           "own (all were tried)",
                           how),
        FailureReason::kNoPlanFound);
  }
  return WithReason(
      FailedPrecondition("no plan was found{}: the tables would fit into the memory of all ranks "
                         "together, and neither heuristics nor a bounded exhaustive search found a "
                         "distribution that keeps every rank within its own; it is not proven that "
                         "there is none",
                         how),
      FailureReason::kNoPlanFound);
}

}  // namespace neuroshard
