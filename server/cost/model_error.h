// How far a model is known to be off: of its held-out samples, and of measurements made since.
#pragma once

#include <cstdint>
#include <string>

#include "server/cost/model_info.h"

namespace neuroshard {

// A model whose compute is further off on held-out samples, or that was held against fewer, is
// poor: it serves, and whoever makes or serves it is told.
inline constexpr double kPoorMapePercent = 50;
inline constexpr std::int64_t kTellingSamples = 10;

// Why the model is poor; empty: it is not.
std::string PoorReason(double compute_mape_percent, std::int64_t held_out_samples);
// By the metrics of its manifest; empty also where they do not say.
std::string PoorReason(const CostModelInfo& model);

// The share that measurements of a stage are usually off, in either direction; of models that do
// not say, about the error of NeuroShard's networks on data that they were not trained on.
double UsualError(const CostModelInfo& model, const std::string& stage);

// Whether the median of measured / predicted is further off than is usual.
bool HasDrifted(const CostModelInfo& model, const StageDrift& drift);

}  // namespace neuroshard
