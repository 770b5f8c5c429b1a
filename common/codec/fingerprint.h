// Fingerprint of a request: answers to the same request have the same one.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/domain/plan_request.h"

namespace neuroshard {

// SHA-256 in hex over everything that can change the plan: tables (sorted by name, so that their
// order does not matter), topology, batch, optimizer, memory model, constraints, migration, search
// options with seed and time budget, and the model that prices it. Not in it: request_id, warnings,
// search.explain, and the model name and version as asked for (the resolved ones are given here).
// `device_models`: those of the request's device_cost_models likewise; empty: as asked for. Ranks
// whose compute the model above prices are as in a request without them. `model_digest` is
// CostModelRef's; without one, and without those of `device_models`, what files a version has does
// not count. Equal on every platform.
std::string RequestFingerprint(const PlanRequest& request, std::string_view model_name,
                               int model_version,
                               std::span<const DeviceCostModel> device_models = {},
                               std::string_view model_digest = {});

}  // namespace neuroshard
