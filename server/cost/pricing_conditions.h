// Pricing conditions: everything in a request that changes the cost of a shard and is the same for
// all plans.
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
  // Factors of the ranks' compute, 1 / Device::compute_speed; empty: 1.
  std::vector<float> compute_scales = {};
  std::int64_t global_batch_size = 65536;
  Optimizer optimizer = Optimizer::kSgd;
  Bandwidths bandwidths = {};
  // Hosts in the order of ranks. Empty: not stated, all ranks are on one host.
  std::vector<HostRanks> hosts = {};
  int pod_size = 1;                                // hosts of an NVLink domain
  std::optional<PipelineType> pipeline_type = {};  // none: not stated
  QuantizedComms quantized_comms = {};
  bool has_rows_off_device = false;  // rows may be in slower memories
  // Every table is as workers measure it, but for its dtype: a sample has one bag with an fp32
  // vector, of rows in fp32, fp16 or bf16.
  bool has_plain_tables = true;
  std::vector<std::uint64_t> modules = {};  // ModuleKey of each, ascending
};

// Returns whether a value has one byte or less. Networks learn two and four bytes as a feature.
constexpr bool IsLowPrecision(DataType dtype) { return ElementBits(dtype) <= 8; }

// Returns the conditions of a request. `plan` is one to be priced, which may use a memory that the
// request does not have.
PricingConditions ConditionsOf(const PlanRequest& request, const Plan& plan = {});

// Returns the conditions for compute alone: one rank, without a distribution of ids.
PricingConditions OfOneRank(PricingConditions conditions);

}  // namespace neuroshard
