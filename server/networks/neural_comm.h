// The communication half of NeuroShard's cost networks: one network for each direction and number
// of ranks.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "server/cost/comm_model.h"
#include "server/cost/pricing_conditions.h"
#include "server/networks/mlp_network.h"
#include "server/networks/model_manifest.h"

namespace neuroshard {

// Immutable; any thread.
class NeuralComm {
 public:
  // Reads the manifest's files in `directory` and runs every network once (a result that is not
  // finite is refused). Errors of ReadNetworkFile.
  static StatusOr<NeuralComm> Load(const ModelManifest& manifest,
                                   const std::filesystem::path& directory);

  // The counts that have both directions, ascending.
  std::vector<int> NumRanks() const;

  // Loads are VolumeEquivalent's; every cost is at least 0 and finite. Null for other counts than
  // NumRanks.
  std::shared_ptr<const CommModel> Bind(const PricingConditions& conditions) const;

 private:
  // The ranks' dim sums, then for the forward direction start offsets in, a cost for each rank out.
  struct Network {
    Normalisation normalisation;
    MlpNetwork mlp;

    // `parts` are [n, ranks] each, and together the inputs; cost_ms is [n, ranks], as the network
    // gives it.
    void Run(std::span<const std::span<const float>> parts, std::span<float> cost_ms) const;
  };
  using Networks = std::map<int, std::shared_ptr<const Network>>;  // by rank count
  class Bound;

  Networks forward_;
  Networks backward_;
};

}  // namespace neuroshard
