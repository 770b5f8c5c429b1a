// A measured compute model with the communication of a fabric that was not measured.
#pragma once

#include <memory>

#include "common/domain/topology.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// Returns a model whose compute, with its conditions and intervals, is that of `compute`, bound to
// one rank; FabricComm prices the communication of 2 to 16,384 ranks at the request's hosts and
// batch size, without intervals. info() is that of `compute` with comm_fabric and all sharding
// types, since the formulas price the collectives of each type.
std::shared_ptr<const CostModel> MakeFabricCostModel(std::shared_ptr<const CostModel> compute,
                                                     const Fabric& fabric);

}  // namespace neuroshard
