// How far a model is known to be off: of its held-out samples, and of measurements made since.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/cost/model_info.h"

namespace neuroshard {

// Beyond these a model is poor: it can serve, but whoever makes it, has it serve or gets its plans
// is told. Communication is noisier than compute.
inline constexpr double kPoorComputeMapePercent = 50;
inline constexpr double kPoorMapePercent = 100;
// Fewer samples of a stage do not tell: neither that a model is good nor that it has drifted.
inline constexpr std::int64_t kTellingSamples = 10;

// Why the model's prices should not be relied on, by what its manifest says; empty: nothing is
// known against it. A stage of which too few samples were held out, whose error on them is beyond
// the above, or whose intervals hold clearly fewer of them than they say; a universal model without
// intervals of compute or of communication that it measured; what its maker marked as unusable.
std::vector<std::string> ReasonsAgainst(const CostModelInfo& model);

// The share that measurements of a stage are usually off, in either direction; of models that do
// not say, about the error of NeuroShard's networks on data that they were not trained on.
double UsualError(const CostModelInfo& model, const std::string& stage);

// Whether enough was measured, and the median of measured / predicted is further off than is usual,
// by more than chance: by a one-sided test of 95 % with the spread of the measurements themselves.
bool HasDrifted(const CostModelInfo& model, const StageDrift& drift);

}  // namespace neuroshard
