#include "server/cost/fabric/fabric_cost_model.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "server/cost/volume_equivalent.h"

namespace neuroshard {
namespace {

constexpr int kMaxFabricRanks = 16384;

float FiniteFloat(double ms) {
  return static_cast<float>(std::min(ms, double{std::numeric_limits<float>::max()}));
}

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

FabricComm::FabricComm(const Fabric& fabric, const std::vector<HostRanks>& hosts,
                       std::int64_t global_batch_size, int pod_size,
                       const QuantizedComms& quantized_comms)
    : collectives_(fabric, hosts, pod_size),
      bytes_per_column_(static_cast<double>(global_batch_size) * kElementBytes),
      conditions_{.num_ranks = collectives_.num_ranks(),
                  .global_batch_size = global_batch_size,
                  .quantized_comms = quantized_comms} {
  const int n = collectives_.num_ranks();
  if (n < 2) return;
  const double bytes = kReferenceColumns * bytes_per_column_;
  const std::vector<double> even(n, bytes / n);
  std::vector<double> ms(n);
  collectives_.AllToAll(even, ms);
  const double all_to_all = *std::ranges::max_element(ms);
  row_wise_columns_ = collectives_.ReduceScatter(bytes) / all_to_all;
  host_row_wise_columns_ = collectives_.HostReduceScatter(bytes) / all_to_all;
  all_reduce_columns_ = collectives_.AllReduce(bytes) / all_to_all;
}

CommLoad FabricComm::Load(const ShardFeatures& shard) const {
  const ExchangedColumns columns = ColumnsOf(conditions_, shard);
  const auto both = [&](double of_all_to_all) {
    return CommLoad{static_cast<float>(columns.forward * of_all_to_all),
                    static_cast<float>(columns.backward * of_all_to_all)};
  };
  if (shard.unpooled) return both(1);
  switch (shard.layout.type) {
    case ShardingType::kRowWise:
      return both(row_wise_columns_);
    case ShardingType::kTableRowWise:
    case ShardingType::kGridShard:
      return both(host_row_wise_columns_);
    case ShardingType::kDataParallel:
      return {0, static_cast<float>(
                     static_cast<double>(shard.rows) * static_cast<double>(shard.cols) /
                     static_cast<double>(conditions_.global_batch_size) * all_reduce_columns_)};
    case ShardingType::kTableWise:
    case ShardingType::kColumnWise:
    case ShardingType::kTableColumnWise:
    case ShardingType::kRowWiseSubset:
      break;
  }
  return both(1);
}

void FabricComm::Costs(CommStage /*stage*/, std::span<const float> loads,
                       std::span<const float> start_offsets_ms, std::span<float> cost_ms) const {
  assert(loads.size() == cost_ms.size());
  const std::size_t n = static_cast<std::size_t>(collectives_.num_ranks());
  assert(loads.size() % n == 0);
  // Kept between calls: a search asks thousands of times a millisecond.
  thread_local std::vector<double> bytes, ms;
  bytes.resize(n);
  ms.resize(n);
  for (std::size_t row = 0; row < loads.size(); row += n) {
    for (std::size_t r = 0; r < n; ++r) {
      bytes[r] = static_cast<double>(loads[row + r]) * bytes_per_column_ / static_cast<double>(n);
    }
    collectives_.AllToAll(bytes, ms);
    if (!start_offsets_ms.empty()) AddWaiting(start_offsets_ms.subspan(row, n), ms);
    for (std::size_t r = 0; r < n; ++r) cost_ms[row + r] = FiniteFloat(ms[r]);
  }
}

std::shared_ptr<const CostModel> MakeFabricCostModel(std::shared_ptr<const CostModel> compute,
                                                     const Fabric& fabric) {
  return std::make_shared<const FabricCostModel>(std::move(compute), fabric);
}

}  // namespace neuroshard
