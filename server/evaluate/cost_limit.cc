#include "server/evaluate/cost_limit.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "common/base/positions.h"
#include "server/evaluate/lower_bound.h"
#include "server/evaluate/rules/demands.h"

namespace neuroshard {
namespace {

constexpr std::size_t kMaxDemandsTriedAlone = 16;
// Most tables in all bounds together: 20 bounds of 2,500 tables take half a second.
constexpr std::size_t kMaxTablesToExplain = 50'000;
constexpr std::size_t kMaxTablesByDefault = 1'000;
// Nobody changes a request for less.
constexpr double kSameBound = 0.01;

using DemandList = std::vector<std::size_t>;

// The request with fewer demands.
PlanRequest WithDemands(const PlanRequest& request, const Demands& demands,
                        const DemandList& dropped) {
  DemandList kept;
  const DemandList all = Positions(demands.size());
  std::ranges::set_difference(all, dropped, std::back_inserter(kept));
  PlanRequest demanding = demands.With(kept);
  PlanRequest with = request;
  with.topology = std::move(demanding.topology);
  with.memory = demanding.memory;
  with.constraints = std::move(demanding.constraints);
  with.migration = std::move(demanding.migration);
  return with;
}

// The smallest set without which the bound is below `most_ms`; empty: there is none.
DemandList HoldingDemands(const Demands& demands, double most_ms,
                          const std::function<double(const DemandList&)>& bound_without_ms) {
  const DemandList all = Positions(demands.size());
  if (bound_without_ms(all) >= most_ms) return {};
  if (demands.size() <= kMaxDemandsTriedAlone) {
    DemandList lowest;
    double lowest_ms = most_ms;
    for (const std::size_t demand : all) {
      const double ms = bound_without_ms({demand});
      if (ms >= lowest_ms) continue;
      lowest = {demand};
      lowest_ms = ms;
    }
    if (!lowest.empty()) return lowest;
  }
  return MinimalSet(demands.size(),
                    [&](const DemandList& dropped) { return bound_without_ms(dropped) < most_ms; });
}

}  // namespace

std::optional<LiftedRules> CostLimitOf(const PlanRequest& request, const BoundCostModel& model,
                                       const LowerBound& bound, const StopSignal& stop) {
  if (bound.kind != BoundKind::kCertified || bound.of_mean_of_max) return std::nullopt;
  const Demands demands(request, TypeSet(model.sharding_types()));
  const bool explain = request.search.explain;
  const std::size_t max_tables = explain ? kMaxTablesToExplain : kMaxTablesByDefault;
  std::size_t tables = 0;
  const auto bound_without_ms = [&](const DemandList& dropped) {
    // As if they changed nothing.
    tables += request.tables.size();
    if (stop.ShouldStop() || tables > max_tables) return bound.cost_ms;
    return LowerBoundOf(WithDemands(request, demands, dropped), model).cost_ms;
  };
  const DemandList holding =
      HoldingDemands(demands, bound.cost_ms * (1 - kSameBound), bound_without_ms);
  if (stop.ShouldStop() || (tables > max_tables && !explain)) return std::nullopt;
  if (holding.empty() && !bound.limit) return std::nullopt;
  LiftedRules lifted;
  lifted.limit = bound.limit.value_or(CostLimit{});
  if (holding.empty()) return lifted;
  for (const std::size_t demand : holding) {
    lifted.limit.rules.push_back({demands.Path(demand), demands.Text(demand)});
  }
  lifted.without = WithDemands(request, demands, holding);
  lifted.without->search.strategy = "refine";
  lifted.without->search.explain = false;
  lifted.limit.bound_without_ms = LowerBoundOf(*lifted.without, model).cost_ms;
  return lifted;
}

}  // namespace neuroshard
