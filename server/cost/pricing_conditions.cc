#include "server/cost/pricing_conditions.h"

#include <algorithm>

namespace neuroshard {

PricingConditions ConditionsOf(const PlanRequest& request) {
  PricingConditions conditions;
  conditions.num_ranks = request.topology.num_ranks();
  conditions.hosts = request.topology.hosts();
  for (const HostRanks& host : conditions.hosts) {
    conditions.ranks_per_host = std::max(conditions.ranks_per_host, host.count);
  }
  conditions.global_batch_size = request.global_batch_size;
  conditions.optimizer = request.optimizer;
  conditions.pipeline_type = request.pipeline_type;
  conditions.bandwidths = request.topology.bandwidths;
  conditions.pod_size = request.topology.pod_size;
  conditions.quantized_comms = request.quantized_comms;
  return conditions;
}

}  // namespace neuroshard
