// Cost models that are networks: NeuroShard's (section 3 of the paper, and its release), and the
// universal ones, for any batch size, optimizer, dtype, rank count and host layout.
#pragma once

#include <filesystem>
#include <memory>

#include "common/base/status.h"
#include "server/cost/cost_model.h"
#include "server/networks/model_manifest.h"

namespace neuroshard {

// Reads the manifest's safetensors files in `directory` and runs every network once (warm-up; a
// result that is not finite is refused). INVALID_ARGUMENT with every fault, naming file and tensor,
// for files that are not what the manifest says (weights that may not be negative included);
// NOT_FOUND for a missing file.
//
// The model:
// - compute by NetworkCompute; outputs "total_ms", or "forward_ms" and "backward_ms", whose sum then
//   is the total;
// - communication of a universal model by UniversalComm, for 1 to 16,384 ranks; 1 alone without a
//   comm section. Else by NeuralComm: Bind accepts the rank counts that have both directions, which
//   ModelCoverage::num_devices lists, and 1, whose communication costs 0 whatever the model. Where
//   the manifest has a fabric, by MakeFabricCostModel;
// - every cost is at least 0 and finite.
// The same inputs give the same bits in any thread and in any batch, and on every CPU whose C
// library computes log1p and exp alike (DenseLayer).
StatusOr<std::shared_ptr<const CostModel>> LoadCostModel(const ModelManifest& manifest,
                                                         const std::filesystem::path& directory);

}  // namespace neuroshard
