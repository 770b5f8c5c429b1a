// One cost model for any batch size, optimizer, dtype, rank count and host layout.
#pragma once

#include <filesystem>
#include <memory>

#include "common/base/status.h"
#include "server/cost/cost_model.h"
#include "server/networks/model_manifest.h"

namespace neuroshard {

// Reads the manifest's safetensors files in `directory` and runs every network once.
// INVALID_ARGUMENT with every fault, naming file and tensor, for files that are not what the
// manifest says (weights that may not be negative included); NOT_FOUND for a missing file.
// `manifest.universal` is there.
//
// The model: compute by UniversalCompute; communication by UniversalComm. Takes 1 to 16,384
// ranks, 1 alone without a comm section. Every cost is finite and at least 0.
StatusOr<std::shared_ptr<const CostModel>> LoadUniversalCostModel(
    const ModelManifest& manifest, const std::filesystem::path& directory);

// LoadUniversalCostModel or LoadNeuralCostModel, by the manifest's kind; over it
// MakeFabricCostModel where the manifest has a fabric.
StatusOr<std::shared_ptr<const CostModel>> LoadCostModel(const ModelManifest& manifest,
                                                         const std::filesystem::path& directory);

}  // namespace neuroshard
