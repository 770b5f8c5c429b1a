// Prediction of costs by a trained network.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "server/pretrain/data/training_problem.h"
#include "server/pretrain/fit/network_definition.h"

namespace neuroshard {

// [samples, outputs], ms, by weights as WeightsOf gives them.
std::vector<double> PredictCosts(const TrainingProblem& problem, const NetworkDefinition& network,
                                 std::span<const float> weights,
                                 std::span<const std::int64_t> samples);

}  // namespace neuroshard
