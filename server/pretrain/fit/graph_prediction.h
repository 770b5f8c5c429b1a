// What a fitted network says of samples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "server/pretrain/fit/fit_problem.h"
#include "server/pretrain/fit/network_graph.h"

namespace neuroshard {

// scale * output [samples, outputs] by weights as they are used.
std::vector<double> PredictOutputs(const FitProblem& problem, const NetworkGraph& graph,
                                   std::span<const float> weights,
                                   std::span<const std::int64_t> samples);

}  // namespace neuroshard
