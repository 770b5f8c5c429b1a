// The communication half of NeuroShard's networks: one network for each direction and number of
// ranks.
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

// The communication networks of one model. Immutable, so thread-safe.
class NeuralComm {
 public:
  // Reads the manifest's files in `directory` and runs every network once, to refuse results that
  // are not finite. Errors are those of ReadNetworkFile.
  static StatusOr<NeuralComm> Load(const ModelManifest& manifest,
                                   const std::filesystem::path& directory);

  // Rank counts that have both directions, ascending.
  std::vector<int> NumRanks() const;

  // Returns the model for the conditions; null for rank counts that are not in NumRanks. Loads are
  // VolumeEquivalent's; every cost is at least 0 and finite.
  std::shared_ptr<const CommModel> Bind(const PricingConditions& conditions) const;

 private:
  // One network: dim sums of the ranks, and forward their start offsets, in; a cost for each rank
  // out.
  struct Network {
    Normalisation normalisation;
    MlpNetwork mlp;

    // Computes `cost_ms`, [n, ranks], unclamped. `parts` are [n, ranks] each and together the
    // inputs.
    void Run(std::span<const std::span<const float>> parts, std::span<float> cost_ms) const;
  };
  using Networks = std::map<int, std::shared_ptr<const Network>>;  // by rank count
  class Bound;

  Networks forward_;
  Networks backward_;
};

}  // namespace neuroshard
