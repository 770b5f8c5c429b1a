// A measured compute model with the communication of a fabric that was not measured.
#pragma once

#include <memory>

#include "common/domain/fabric.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// Compute, its conditions and its intervals are those of `compute`, which is asked for one rank;
// communication of 2 to 16,384 ranks is FabricComm's at the request's hosts and batch size and has
// no intervals. info() is `compute`'s with comm_fabric and with all
// sharding types, since the formulas price each type's own collectives.
std::shared_ptr<const CostModel> MakeFabricCostModel(std::shared_ptr<const CostModel> compute,
                                                     const Fabric& fabric);

}  // namespace neuroshard
