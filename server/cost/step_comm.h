// Communication as the steps of a trainer have it.
#pragma once

#include <memory>

#include "server/cost/comm_model.h"
#include "server/cost/measured_rates.h"
#include "server/cost/pricing_conditions.h"

namespace neuroshard {

// Returns `comm` with the scale and the time of each exchange of `rates`. Loads name the exchange
// that their shards are part of (ShardKinds::exchanges), so a placement pays once for each module
// and sharding type that it has. The exchanges of ids are counted in the forward stage, all of their
// time without a pipeline and a share of it with one. Immutable, so thread-safe.
std::shared_ptr<const CommModel> WithSteps(std::shared_ptr<const CommModel> comm,
                                           const StepRates& rates,
                                           const PricingConditions& conditions);

}  // namespace neuroshard
