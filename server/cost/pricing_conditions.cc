#include "server/cost/pricing_conditions.h"

#include <algorithm>

#include "common/base/positions.h"
#include "server/cost/shard_features.h"

namespace neuroshard {
namespace {

bool IsPlain(const Table& table) {
  return table.kind == TableKind::kEmbeddingBag && !IsLowPrecision(table.weight_dtype) &&
         table.output_dtype.value_or(DataType::kFp32) == DataType::kFp32 &&
         table.num_poolings.empty() && table.feature_batch_sizes.empty();
}

}  // namespace

PricingConditions ConditionsOf(const PlanRequest& request, const Plan& plan) {
  PricingConditions conditions;
  conditions.num_ranks = request.topology.num_ranks();
  const std::vector<Device>& devices = request.topology.devices;
  if (std::ranges::any_of(devices,
                          [](const Device& device) { return device.compute_speed != 1; })) {
    for (const Device& device : devices) {
      conditions.compute_scales.push_back(static_cast<float>(1 / device.compute_speed));
    }
  }
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
  conditions.has_rows_off_device =
      std::ranges::any_of(kSharedMemories,
                          [&](const SharedMemory& of) { return request.may_use(of.tier); }) ||
      std::ranges::any_of(plan.tables, [](const TablePlan& table) {
        return TierOf(table.compute_kernel) != MemoryTier::kDevice;
      });
  for (const Table& table : request.tables) conditions.modules.push_back(ModuleKey(table));
  SortUnique(conditions.modules);
  conditions.has_plain_tables = std::ranges::all_of(request.tables, IsPlain);
  return conditions;
}

PricingConditions OfOneRank(PricingConditions conditions) {
  conditions.num_ranks = 1;
  conditions.ranks_per_host = 1;
  conditions.hosts = {{0, 1}};
  conditions.pod_size = 1;
  conditions.pipeline_type.reset();
  return conditions;
}

}  // namespace neuroshard
