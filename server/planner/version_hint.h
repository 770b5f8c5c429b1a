// Other versions of the cost model that know more of what a request has.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/domain/plan_report.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// All versions of a name that are served, e.g. ModelSnapshot::VersionsOf of the newest snapshot.
// Thread-safe.
using VersionFinder =
    std::function<std::vector<std::shared_ptr<const CostModel>>(const std::string& name)>;

// A warning where the request names a version, and another was measured nearer to it than the model
// that priced `plan`, whose basis is given. Nothing where the operator chose the version, by a
// channel or by publishing it last: callers would only wonder why the other is not taken. Nearer is:
// no stage of PriceBasis rests on less, and one on more, or the same with fewer differences. The
// nearest, of those the newest. Never a version that cannot price the request, that does not state
// all conditions that it was measured at, or that its maker marked as unusable.
std::optional<std::string> VersionHint(const PlanRequest& request, const Plan& plan,
                                       const CostModelInfo& own, const PriceBasis& basis,
                                       const VersionFinder& versions_of);

}  // namespace neuroshard
