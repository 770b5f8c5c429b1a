#include "server/planner/version_hint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "server/planner/price_basis.h"

namespace neuroshard {
namespace {

// By stage, how much of a basis is formula.
std::vector<int> FormulasIn(const PriceBasis& basis) {
  return Mapped<int>(basis.stages, [&](const StagePriceBasis& of) {
    return of.kind == BasisKind::kMeasured ? 0 : of.kind == BasisKind::kMixed ? 1 : 2;
  });
}

// In no stage further from the request, and nearer in one or in what differs besides. Of one request
// all have the same stages.
bool IsNearer(const PriceBasis& basis, const PriceBasis& other) {
  const std::vector<int> own = FormulasIn(basis);
  const std::vector<int> others = FormulasIn(other);
  return std::equal(own.begin(), own.end(), others.begin(), others.end(), std::less_equal<>()) &&
         std::pair(own, basis.differences.size()) < std::pair(others, other.differences.size());
}

// What is better of `nearer`: stages that rest on less formula, and what no longer differs.
std::vector<std::string> Gains(const PriceBasis& basis, const PriceBasis& nearer) {
  std::vector<std::string> gains;
  for (std::size_t i = 0; i < basis.stages.size(); ++i) {
    const auto [stage, before] = basis.stages[i];
    const BasisKind after = nearer.stages[i].kind;
    if (after == before) continue;
    gains.push_back(
        fmt::format("{} is {} there and {} here", ToText(stage), ToText(after), ToText(before)));
  }
  for (const std::string& difference : basis.differences) {
    const auto& left = nearer.differences;
    if (std::ranges::find(left, difference) != left.end()) continue;
    gains.push_back(fmt::format("not so there: {}", difference));
  }
  return gains;
}

// What a model does not state is no difference, so that it would seem to have measured everything.
bool StatesConditions(const ModelCoverage& coverage) {
  const ConditionRanges& ranges = coverage.ranges;
  return ranges.max_batch_size > 0 && ranges.max_ranks > 0 && ranges.max_hosts > 0 &&
         !ranges.weight_dtypes.empty() && !ranges.optimizers.empty();
}

}  // namespace

std::optional<std::string> VersionHint(const PlanRequest& request, const Plan& plan,
                                       const CostModelInfo& own, const PriceBasis& basis,
                                       const VersionFinder& versions_of) {
  if (request.cost_model.version == 0 || versions_of == nullptr) return std::nullopt;
  if (basis.differences.empty()) return std::nullopt;
  const PricingConditions conditions = ConditionsOf(request, plan);
  std::shared_ptr<const CostModel> found;
  PriceBasis nearest = basis;
  auto versions = versions_of(own.name);
  std::ranges::reverse(versions);  // the newest of several first
  for (const std::shared_ptr<const CostModel>& model : versions) {
    const CostModelInfo& info = model->info();
    if (!info.unusable_reason.empty() || !StatesConditions(info.coverage)) continue;
    PriceBasis its_basis = PriceBasisOf(request, info, GapsOf(request, info, plan));
    if (!IsNearer(its_basis, nearest) || !model->Bind(conditions).ok()) continue;
    found = model;
    nearest = std::move(its_basis);
  }
  if (found == nullptr) return std::nullopt;
  return fmt::format(
      "the request names version {} of cost model {} (cost_model.version); version {} was measured "
      "nearer to it: {}",
      own.version, own.name, found->info().version, fmt::join(Gains(basis, nearest), "; "));
}

}  // namespace neuroshard
