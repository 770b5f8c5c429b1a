// The communication half of a universal model, kind universal_comm: one network for any number of
// ranks, any host layout and the five kinds of collectives.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/cost/comm_features.h"
#include "server/cost/comm_model.h"
#include "server/cost/pricing_conditions.h"
#include "server/networks/mlp_network.h"
#include "server/networks/model_manifest.h"
#include "server/networks/safetensors.h"

namespace neuroshard {

// One member of the ensemble. The cost of a rank in collective c is wait_scale[c] x wait +
// floor_ms[c] + exp(clamp(net(z), -20, 12)), net with HiddenUnits::kHalves. Weights behind the
// rising features are not negative, so the cost rises with bytes; it is neither convex nor concave
// in them. Immutable, so thread-safe; a thread allocates only when it calls with more rows than
// before.
class CommNetworkMember {
 public:
  // Takes tensors "<prefix>layer.<i>.weight" ... of a file that passed CheckNetworkTensors.
  CommNetworkMember(const TensorFile& file, const std::string& prefix,
                    const std::vector<std::int64_t>& layers);

  // Prices any number of collectives of one kind: a row of normalized features and a wait per rank,
  // as CommFeaturesOf gives them.
  void Costs(CollectiveKind kind, std::span<const float> rows, std::span<const double> wait_ms,
             std::span<double> cost_ms) const;

 private:
  MlpNetwork net_;
  std::vector<float> wait_scale_;
  std::vector<float> floor_ms_;
};

struct UniversalCommNetworks;

// Communication of 2 to 16,384 ranks. Bound to conditions it prices loads of columns (ColumnsOf), 4
// bytes per value on the wire:
// - All-to-alls are priced by the network, with the hosts of the conditions, or with all ranks on
//   one host where the network was trained on a single host (trained_on.max_hosts at most 1).
// - Cut rows count as the columns whose all-to-all costs as much as the reduce-scatter (forward)
//   and all-gather (backward) of the shard, by the ratio of the network's costs with 128 columns on
//   every rank; replicas as those of the all-reduce (backward). A collective that the samples lack
//   (trained_on.collectives) keeps the ratio of VolumeEquivalent: 1, all-reduce 2.
// - SetupOf adds what each collective of the placement takes for no bytes at all, since the
//   all-to-all of all columns stands for a single collective.
//
// The interval of a stage is the widest of its placement's collectives (of the all-to-all where it
// has none); a collective that the manifest does not mention has the interval of the all-to-all.
// Costs are equivariant under permutations of ranks, but for the order of additions, rise with
// every rank's load and are never negative. Immutable, so thread-safe.
class UniversalComm {
 public:
  // `network` is of kind kUniversalComm; `file` passed CheckNetworkTensors.
  UniversalComm(const NetworkManifest& network, const TrainedOnManifest& trained_on,
                const TensorFile& file);

  // Returns the model of at least two ranks, or FAILED_PRECONDITION naming the ranks that can be
  // priced.
  StatusOr<std::shared_ptr<const CommModel>> Bind(const PricingConditions& conditions) const;

 private:
  std::shared_ptr<const UniversalCommNetworks> networks_;
};

}  // namespace neuroshard
