// Pricing conditions: what is the same for all plans of a request and changes what a shard costs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/domain/plan_request.h"

namespace neuroshard {

// Ranks, batch size, optimizer, links and pipeline of a request.
struct PricingConditions {
  int num_ranks = 1;
  int ranks_per_host = 1;  // of the largest host
  // What ranks' compute is multiplied by, 1 / Device::compute_speed; empty: 1.
  std::vector<float> compute_scales = {};
  std::int64_t global_batch_size = 65536;
  Optimizer optimizer = Optimizer::kSgd;
  Bandwidths bandwidths = {};
  // The hosts, in the order of ranks. Empty: not stated, and all ranks are on one host.
  std::vector<HostRanks> hosts = {};
  int pod_size = 1;                                // hosts of an NVLink domain
  std::optional<PipelineType> pipeline_type = {};  // none: not stated
  QuantizedComms quantized_comms = {};
};

PricingConditions ConditionsOf(const PlanRequest& request);

}  // namespace neuroshard
