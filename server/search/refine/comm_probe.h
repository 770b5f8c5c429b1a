// How communication responds to load before anything was placed.
#pragma once

#include "server/cost/cost_model.h"
#include "server/search/refine/comm_response.h"

namespace neuroshard {

// Around every rank holding these loads and all being ready at once: what half as much again costs
// on one rank and on all, and what one late rank costs the others. 4 placements are priced.
CommResponse::Coefficients ProbeComm(const CostModel& model, int num_ranks, double forward_load,
                                     double backward_load);

}  // namespace neuroshard
