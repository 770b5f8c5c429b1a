// The loss that is minimised.
#pragma once

#include <span>

#include "server/pretrain/fit/fit_batch.h"
#include "server/pretrain/fit/fit_problem.h"

namespace neuroshard {

// Sum over the batch's samples and targets of the problem's loss between scale * output and target,
// with the total of a sample's outputs as one more target where the problem says so. `gradient`,
// unless empty, becomes `factor` * d sum / d output.
double FitLossOf(const FitProblem& problem, const FitBatch& batch, std::span<const float> outputs,
                 float factor, std::span<float> gradient);

}  // namespace neuroshard
