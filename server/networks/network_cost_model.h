// Cost models of networks: NeuroShard's (section 3 of the paper, and its release), and universal
// ones for any batch size, optimizer, dtype, rank count and host layout.
#pragma once

#include <filesystem>
#include <memory>

#include "common/base/status.h"
#include "server/cost/cost_model.h"
#include "server/networks/model_manifest.h"

namespace neuroshard {

// Reads the manifest's safetensors files in `directory` and runs every network once, as warm-up and
// to refuse results that are not finite. INVALID_ARGUMENT with every fault, naming file and tensor,
// for files that contradict the manifest (negative weights where none may be included); NOT_FOUND
// for a missing file.
//
// NetworkCompute prices compute: "total_ms", or "forward_ms" and "backward_ms" and their sum.
// UniversalComm prices the communication of a universal model, for 1 to 16,384 ranks (for 1 alone
// without a comm section). NeuralComm prices that of NeuroShard's networks: Bind accepts the rank
// counts with both directions, which ModelCoverage::num_devices lists, and 1, whose communication
// costs 0. MakeFabricCostModel prices it where the manifest has a fabric, MakeAnalyticCostModel all
// of kind torchrec. Every cost is at least 0 and finite.
//
// Equal inputs give equal bits in any thread and in any batch, and on every CPU whose C
// library computes log1p and exp alike (DenseLayer).
StatusOr<std::shared_ptr<const CostModel>> LoadCostModel(const ModelManifest& manifest,
                                                         const std::filesystem::path& directory);

}  // namespace neuroshard
