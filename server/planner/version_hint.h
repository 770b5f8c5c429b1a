// Hints at versions of the cost model that were measured nearer to a request.
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

// Returns the served versions of a name, e.g. ModelSnapshot::VersionsOf of the newest snapshot.
// Thread-safe.
using VersionFinder =
    std::function<std::vector<std::shared_ptr<const CostModel>>(const std::string& name)>;

// Returns a warning where the request names a version and another one was measured nearer to it
// than the model `own`, which priced `plan` on the given basis. Where the operator chose the
// version, by a channel or by publishing it last, there is none, since callers could not act on it.
// A version is nearer if no stage of its PriceBasis rests on less and one rests on more, or all on
// the same with fewer differences; of the nearest the newest is named. Versions that cannot price
// the request, do not state all conditions they were measured at, or are marked as unusable are
// never named.
std::optional<std::string> VersionHint(const PlanRequest& request, const Plan& plan,
                                       const CostModelInfo& own, const PriceBasis& basis,
                                       const VersionFinder& versions_of);

}  // namespace neuroshard
