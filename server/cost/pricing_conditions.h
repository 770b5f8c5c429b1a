// Pricing conditions: what is the same for all plans of a request and changes what a shard costs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/domain/plan_request.h"

namespace neuroshard {

// Bandwidths are of a second, prices in ms.
inline constexpr double kMsPerSecond = 1000;

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
  bool has_rows_off_device = false;  // they may be in host memory or on SSD
  // Every table is as workers measure it but for its dtype: a sample has one bag, whose vector is
  // fp32, of rows of fp32, fp16 or bf16.
  bool has_plain_tables = true;
};

// Whether rows have one byte a value: networks learn the others as a feature.
constexpr bool IsLowPrecision(DataType dtype) { return ElementBytes(dtype) == 1; }

// `plan` is one to be priced, which may have rows in a memory that the request does not have.
PricingConditions ConditionsOf(const PlanRequest& request, const Plan& plan = {});

// For compute alone: those of a request of one rank, which asks for no distribution of ids.
PricingConditions OfOneRank(PricingConditions conditions);

}  // namespace neuroshard
