// A measured compute model with the communication of a fabric that was not measured.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/domain/fabric_collectives.h"
#include "common/domain/topology.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// Prices the communication of one request by FabricCollectives, at the request's batch size and
// hosts. A CommLoad is columns of pooled fp32 vectors (ColumnsOf) in an all-to-all over all ranks,
// as in VolumeEquivalent; another collective counts as the columns whose all-to-all takes as long,
// compared at kReferenceColumns on every rank. Immutable, so thread-safe. Pricing is O(ranks).
class FabricComm final : public CommModel {
 public:
  static constexpr double kReferenceColumns = 128;
  static constexpr double kElementBytes = 4;

  // `hosts` and `pod_size` are FabricCollectives'. `global_batch_size` is at least 1.
  FabricComm(const Fabric& fabric, const std::vector<HostRanks>& hosts,
             std::int64_t global_batch_size, int pod_size = 1,
             const QuantizedComms& quantized_comms = {});

  // Returns the load by the collectives of the sharding type:
  // - table_wise, column_wise, table_column_wise, row_wise_subset: the shard's columns (HugeCTR
  //   exchanges partial sums in an all-to-all); unpooled tables likewise in every type;
  // - row_wise: reduce-scatter forward and all-gather backward over all ranks;
  // - table_row_wise, grid_shard: reduce-scatter on the host, then between hosts; the same
  //   backward;
  // - data_parallel: all-reduce of the rows, backward alone.
  CommLoad Load(const ShardFeatures& shard) const override;

  void Costs(CommStage stage, std::span<const float> loads, std::span<const float> start_offsets_ms,
             std::span<float> cost_ms) const override;

 private:
  FabricCollectives collectives_;
  double bytes_per_column_;  // of one rank for the whole batch
  // Columns of an all-to-all that take as long as one column of the other collective.
  double row_wise_columns_ = 1;
  double host_row_wise_columns_ = 1;
  double all_reduce_columns_ = 1;  // of B x 1 values
  PricingConditions conditions_;   // ranks, batch size and types on the wire
};

// Returns a model whose compute, with its conditions and intervals, is that of `compute`, bound to
// one rank; FabricComm prices the communication of 2 to 16,384 ranks at the request's hosts and
// batch size, without intervals. info() is that of `compute` with comm_fabric and all sharding
// types, since the formulas price the collectives of each type.
std::shared_ptr<const CostModel> MakeFabricCostModel(std::shared_ptr<const CostModel> compute,
                                                     const Fabric& fabric);

}  // namespace neuroshard
