// What a request says that is the same for all its plans and changes what a shard costs.
#pragma once

#include <cstdint>

#include "common/domain/plan_request.h"

namespace neuroshard {

struct PricingConditions {
  int num_ranks = 1;
  int ranks_per_host = 1;  // of the largest host
  std::int64_t global_batch_size = 65536;
  Optimizer optimizer = Optimizer::kSgd;
  Bandwidths bandwidths = {};
};

PricingConditions ConditionsOf(const PlanRequest& request);

}  // namespace neuroshard
