// NeuroShard's cost networks (section 3 of the paper, and its release).
#pragma once

#include <filesystem>
#include <memory>

#include "common/base/status.h"
#include "server/cost/cost_model.h"
#include "server/networks/model_manifest.h"

namespace neuroshard {

// Reads the manifest's safetensors files in `directory` and runs every network once (warm-up; a
// result that is not finite is refused). INVALID_ARGUMENT with every fault, naming file and tensor,
// for files that are not what the manifest says; NOT_FOUND for a missing file.
//
// The model:
// - compute = head(sum of phi(z)), z = (x - feature_mean) / feature_std; outputs "total_ms", or
//   "forward_ms" and "backward_ms", whose sum then is the total;
// - one communication network a rank count. Bind accepts the counts that have both
//   directions, and 1, whose communication costs 0 whatever the model; ModelCoverage::num_devices
//   lists the former;
// - every cost is at least 0 and finite: what a network puts below 0 becomes 0, what overflows
//   becomes the largest float, so that a search avoids it.
// The same inputs give the same bits in any thread and in any batch, and on every CPU whose C
// library computes log1p alike (DenseLayer).
StatusOr<std::shared_ptr<const CostModel>> LoadNeuralCostModel(
    const ModelManifest& manifest, const std::filesystem::path& directory);

}  // namespace neuroshard
