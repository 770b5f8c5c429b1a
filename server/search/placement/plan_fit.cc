#include "server/search/placement/plan_fit.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/failure_reason.h"
#include "common/domain/memory_pools.h"
#include "common/domain/memory_use.h"
#include "common/domain/shard_layout.h"

namespace neuroshard {

Status CheckFits(const PlanRequest& request, const Plan& plan, const std::string& whose) {
  const std::vector<Device>& devices = request.topology.devices;
  std::vector<MemoryUse> used(devices.size());
  std::vector<bool> holds(devices.size(), false);
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const ShardLayout layout = LayoutOf(plan.tables[t]);
    for (const Shard& shard : plan.tables[t].shards) {
      const std::size_t r = static_cast<std::size_t>(shard.rank);
      used[r] += ShardMemory(request, request.tables[t], layout, shard.rows, shard.cols);
      holds[r] = true;
    }
  }
  MemoryPools pools(request);
  for (std::size_t r = 0; r < devices.size(); ++r) {
    pools.Add(static_cast<int>(r), used[r].by_tier());
  }
  int least = 0;
  const auto left = [&](int rank) { return pools.Left(rank, MemoryTier::kHost); };
  for (int r = 1; r < request.topology.num_ranks(); ++r) {
    if (left(r) < left(least)) least = r;
  }
  if (const std::int64_t lack = -left(least); lack > 0) {
    return WithReason(
        FailedPrecondition("no plan was found: {} does not fit: rank {} lacks {} "
                           "bytes ({}) of the memory of host {}",
                           whose, least, lack, FormatBytes(lack), pools.host_of(least)),
        FailureReason::kNoPlanFound);
  }
  std::size_t worst = devices.size();
  std::int64_t worst_lack = 0;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    if (!holds[r]) continue;
    used[r].reserve_bytes = ReserveBytes(request.memory, devices[r].memory_bytes);
    const std::int64_t lack = used[r].total_bytes() - devices[r].memory_bytes;
    if (lack > worst_lack) {
      worst = r;
      worst_lack = lack;
    }
  }
  if (worst == devices.size()) return absl::OkStatus();
  const std::int64_t needs = used[worst].total_bytes();
  const std::int64_t has = devices[worst].memory_bytes;
  return WithReason(
      FailedPrecondition(
          "no plan was found: {} does not fit: rank {} needs {} bytes ({}) and has {} bytes ({})",
          whose, worst, needs, FormatBytes(needs), has, FormatBytes(has)),
      FailureReason::kNoPlanFound);
}

}  // namespace neuroshard
