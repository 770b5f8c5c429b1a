#include "server/planner/version_hint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/planner/condition_warnings.h"
#include "server/planner/price_basis.h"

namespace neuroshard {
namespace {

int FormulasIn(BasisKind kind) {
  if (kind == BasisKind::kMeasured) return 0;
  return kind == BasisKind::kMixed ? 1 : 2;
}

// How far a model is from a request: less is nearer. Of one request all have the same stages.
struct Distance {
  explicit Distance(const PriceBasis& basis) : differences(basis.differences.size()) {
    for (const StagePriceBasis& of : basis.stages) stages.push_back(FormulasIn(of.kind));
  }

  // In no stage further, and nearer in one or in what differs besides.
  bool IsNearerThan(const Distance& other) const {
    return std::equal(stages.begin(), stages.end(), other.stages.begin(), other.stages.end(),
                      std::less_equal<>()) &&
           std::tie(stages, differences) < std::tie(other.stages, other.differences);
  }

  std::vector<int> stages;
  std::size_t differences = 0;
};

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
    if (std::find(left.begin(), left.end(), difference) != left.end()) continue;
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
  PricingConditions conditions = ConditionsOf(request);
  if (HasRowsOffDevice(plan)) conditions.has_rows_off_device = true;
  Distance nearest(basis);
  std::shared_ptr<const CostModel> found;
  PriceBasis found_basis;
  auto versions = versions_of(own.name);
  std::reverse(versions.begin(), versions.end());  // the newest of several first
  for (const std::shared_ptr<const CostModel>& model : versions) {
    const CostModelInfo& info = model->info();
    if (!info.unusable_reason.empty() || !StatesConditions(info.coverage)) continue;
    PriceBasis its_basis = PriceBasisOf(request, info, "", plan);
    const Distance distance(its_basis);
    if (!distance.IsNearerThan(nearest) || !model->Bind(conditions).ok()) continue;
    nearest = distance;
    found = model;
    found_basis = std::move(its_basis);
  }
  if (found == nullptr) return std::nullopt;
  return fmt::format(
      "the request names version {} of cost model {} (cost_model.version); version {} was measured "
      "nearer to it: {}",
      own.version, own.name, found->info().version, fmt::join(Gains(basis, found_basis), "; "));
}

}  // namespace neuroshard
