// Representations alone, for tests that do not look at communication.
#pragma once

#include <span>
#include <vector>

#include "server/cost/cost_model.h"

namespace neuroshard {

inline void RepresentInto(const CostModel& model, std::span<const ShardFeatures> shards,
                          std::span<float> phi) {
  std::vector<CommLoad> loads(shards.size());
  model.Represent(PricingConditions{}, shards, phi, loads);
}

}  // namespace neuroshard
