#include "server/cost/fabric/fabric_cost_model.h"

#include <utility>

#include "server/cost/fabric/fabric_comm.h"

namespace neuroshard {
namespace {

constexpr int kMaxFabricRanks = 16384;

CostModelInfo InfoWithFabric(CostModelInfo info, const Fabric& fabric) {
  ModelCoverage& coverage = info.coverage;
  coverage.comm_fabric = fabric.name;
  coverage.num_devices.clear();
  coverage.max_ranks = kMaxFabricRanks;
  coverage.ranges.min_ranks = coverage.ranges.max_ranks = coverage.ranges.max_hosts = 0;
  coverage.measured_types.clear();
  for (const auto& word : kWords<ShardingType>) coverage.measured_types.push_back(word.value);
  // No collective is less known than an all-to-all: all types that TorchRec runs.
  coverage.sharding_types = coverage.measured_types;
  std::erase(coverage.sharding_types, ShardingType::kRowWiseSubset);
  info.properties.separable_comm = info.properties.monotone_shard_costs = false;
  info.properties.comm_run_a_rank = true;
  info.typical_errors.erase("forward_comm");
  info.typical_errors.erase("backward_comm");
  return info;
}

class FabricCostModel final : public CostModel {
 public:
  FabricCostModel(std::shared_ptr<const CostModel> compute, const Fabric& fabric)
      : CostModel(InfoWithFabric(compute->info(), fabric)),
        compute_(std::move(compute)),
        fabric_(fabric) {}

  StatusOr<BoundCostModel> Bind(const PricingConditions& conditions) const override {
    const int num_ranks = conditions.num_ranks;
    if (num_ranks > kMaxFabricRanks) {
      return FailedPrecondition("cost model {} version {} prices up to {} devices, got {}",
                                info().name, info().version, kMaxFabricRanks, num_ranks);
    }
    NS_ASSIGN_OR_RETURN(const BoundCostModel one_rank, compute_->Bind(OfOneRank(conditions)));
    std::vector<HostRanks> hosts = conditions.hosts;
    if (hosts.empty()) hosts = {{0, num_ranks}};
    std::shared_ptr<const CommModel> comm =
        num_ranks == 1
            ? CommOfOneRank()
            : std::make_shared<const FabricComm>(fabric_, hosts, conditions.global_batch_size,
                                                 conditions.pod_size, conditions.quantized_comms);
    return BoundCostModel(conditions, info().properties, info().coverage.sharding_types,
                          one_rank.compute(), std::move(comm));
  }

 private:
  const std::shared_ptr<const CostModel> compute_;
  const Fabric fabric_;
};

}  // namespace

std::shared_ptr<const CostModel> MakeFabricCostModel(std::shared_ptr<const CostModel> compute,
                                                     const Fabric& fabric) {
  return std::make_shared<const FabricCostModel>(std::move(compute), fabric);
}

}  // namespace neuroshard
