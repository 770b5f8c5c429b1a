// Known errors of a model: on its held-out samples, and against measurements made since.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/cost/model_info.h"

namespace neuroshard {

// Errors beyond which a model is poor: it can serve, but its maker, its operator and the callers
// are told. Communication is noisier than compute.
inline constexpr double kPoorComputeMapePercent = 50;
inline constexpr double kPoorMapePercent = 100;
// Least number of samples of a stage that say whether a model is good or has drifted.
inline constexpr std::int64_t kTellingSamples = 10;

// Returns why the model's prices should not be relied on, by its manifest; empty: nothing is known
// against it. The reasons: a stage with too few held-out samples, with an error beyond the above,
// or with intervals that hold clearly fewer samples than stated; a universal model without
// intervals for compute or for communication that it measured; and a maker's mark as unusable.
std::vector<std::string> ReasonsAgainst(const CostModelInfo& model);

// Returns the usual relative error of a stage in either direction; for models that do not state
// one, about the error of NeuroShard's networks on unseen data.
double UsualError(const CostModelInfo& model, const std::string& stage);

// Returns whether enough was measured and the median of measured / predicted is off by more than
// the usual error and more than chance, by a one-sided test at 95 % with the spread of the
// measurements.
bool HasDrifted(const CostModelInfo& model, const StageDrift& drift);

}  // namespace neuroshard
