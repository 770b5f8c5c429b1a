#include "server/cost/fabric/fabric_cost_model.h"

#include <utility>

#include "server/cost/fabric/fabric_comm.h"

namespace neuroshard {
namespace {

constexpr int kMostFabricRanks = 16384;

PricingConditions OfOneRank(const PricingConditions& conditions) {
  PricingConditions one = conditions;
  one.num_ranks = 1;
  one.ranks_per_host = 1;
  one.hosts = {{0, 1}};
  return one;
}

CostModelInfo InfoWithFabric(CostModelInfo info, const Fabric& fabric) {
  info.comm_fabric = fabric.name;
  info.num_devices.clear();
  info.max_ranks = kMostFabricRanks;
  info.ranges.min_ranks = 0;
  info.ranges.max_ranks = 0;
  info.ranges.max_hosts = 0;
  info.measured_types.clear();
  for (const auto& word : kWords<ShardingType>) info.measured_types.push_back(word.value);
  info.separable_comm = false;
  info.monotone_shard_costs = false;
  info.typical_errors.erase("forward_comm");
  info.typical_errors.erase("backward_comm");
  return info;
}

struct FabricParts {
  CostModelInfo info;
  std::shared_ptr<const CostModel> compute;
  Fabric fabric;
};

class FabricCostModel final : public CostModel {
 public:
  // `comm` null: unbound.
  FabricCostModel(std::shared_ptr<const FabricParts> parts, std::shared_ptr<const FabricComm> comm)
      : parts_(std::move(parts)), comm_(std::move(comm)) {}

  const CostModelInfo& info() const override { return parts_->info; }

  Status CheckConditions(const PricingConditions& conditions) const override {
    if (conditions.num_ranks > kMostFabricRanks) {
      return FailedPrecondition("cost model {} version {} prices up to {} devices, got {}",
                                info().name, info().version, kMostFabricRanks,
                                conditions.num_ranks);
    }
    return parts_->compute->CheckConditions(OfOneRank(conditions));
  }

  std::shared_ptr<const CostModel> ForConditions(
      const PricingConditions& conditions) const override {
    if (conditions.num_ranks == 1) return nullptr;
    std::vector<HostRanks> hosts = conditions.hosts;
    if (hosts.empty()) hosts = {{0, conditions.num_ranks}};
    return std::make_shared<const FabricCostModel>(
        parts_, std::make_shared<const FabricComm>(parts_->fabric, std::move(hosts),
                                                   conditions.global_batch_size));
  }

  int representation_width() const override { return parts_->compute->representation_width(); }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi, std::span<CommLoad> loads) const override {
    parts_->compute->Represent(conditions, shards, phi, loads);
    if (comm_ == nullptr) return;
    for (std::size_t i = 0; i < shards.size(); ++i) loads[i] = comm_->Load(shards[i]);
  }

  void ComputeCosts(std::span<const float> sums, std::span<ComputeCost> out) const override {
    parts_->compute->ComputeCosts(sums, out);
  }

  void BackwardCommCosts(int num_ranks, std::span<const float> loads,
                         std::span<float> cost_ms) const override {
    BackwardCostsOf(comm_.get(), num_ranks, loads, cost_ms);
  }

  void ForwardCommCosts(int num_ranks, std::span<const float> loads,
                        std::span<const float> start_offsets_ms,
                        std::span<float> cost_ms) const override {
    ForwardCostsOf(comm_.get(), num_ranks, loads, start_offsets_ms, cost_ms);
  }

  std::vector<ComputeInterval> ComputeIntervals(
      const PricingConditions& conditions,
      std::span<const std::vector<ShardFeatures>> shards_of_ranks,
      std::span<const ComputeCost> costs) const override {
    return parts_->compute->ComputeIntervals(conditions, shards_of_ranks, costs);
  }

  // On a fabric there are none. One rank has no fabric communication: `compute` answers for it.
  std::vector<CommInterval> CommIntervals(std::span<const RankComm> ranks) const override {
    if (comm_ != nullptr) return {};
    return parts_->compute->CommIntervals(ranks);
  }

 private:
  const std::shared_ptr<const FabricParts> parts_;
  const std::shared_ptr<const FabricComm> comm_;
};

}  // namespace

std::shared_ptr<const CostModel> MakeFabricCostModel(std::shared_ptr<const CostModel> compute,
                                                     const Fabric& fabric) {
  CostModelInfo info = InfoWithFabric(compute->info(), fabric);
  return std::make_shared<const FabricCostModel>(
      std::make_shared<const FabricParts>(FabricParts{std::move(info), std::move(compute), fabric}),
      nullptr);
}

}  // namespace neuroshard
