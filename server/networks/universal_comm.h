// The communication half of a universal model, kind universal_comm: one network for any number of
// ranks, any host layout and four collectives.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/cost/comm_features.h"
#include "server/cost/comm_model.h"
#include "server/cost/interval_rule.h"
#include "server/cost/pricing_conditions.h"
#include "server/networks/mlp_network.h"
#include "server/networks/model_manifest.h"
#include "server/networks/safetensors.h"

namespace neuroshard {

// One member. cost = wait_scale[c] x wait + floor_ms[c] + exp(clamp(net(z), -20, 12)) of a rank in
// collective c, net with HiddenUnits::kHalves: with weights that are not negative behind the rising
// features the cost rises with bytes, and is neither convex nor concave in them. Immutable; any
// thread; asks for no memory once a thread has called it with as many rows.
class CommNetworkMember {
 public:
  // Tensors "<prefix>.layer.<i>.weight" ... of a file that CheckNetworkTensors has passed with
  // UniversalCommTensors.
  CommNetworkMember(const TensorFile& file, const std::string& prefix,
                    const std::vector<std::int64_t>& layers);

  // A row of normalised features and a wait for each rank, as CommFeaturesOf gives them, of any
  // number of collectives of one kind.
  void Costs(CollectiveKind kind, std::span<const float> rows, std::span<const double> wait_ms,
             std::span<double> cost_ms) const;

 private:
  MlpNetwork net_;
  std::vector<float> wait_scale_;
  std::vector<float> floor_ms_;
};

struct UniversalCommNetworks;

// Immutable; any thread. Takes 2 to 16,384 ranks. Bound to conditions it prices loads of columns
// (ColumnsOf), 4 bytes a value on the wire:
// - all-to-all kinds as the network does, with the hosts of the conditions, or with all ranks on
//   one host where the network has only seen one (trained_on.max_hosts at most 1);
// - cut rows as the columns that cost as much in an all-to-all as the reduce-scatter (forward) and
//   all-gather (backward) of the shard, by the ratio of the network's own costs with 128 columns on
//   every rank; replicas likewise by all-reduce (backward). A collective that the samples did not
//   have (trained_on.collectives) keeps the ratio of VolumeEquivalent: 1, all-reduce 2.
// - what a collective takes for no bytes at all, once for each that the placement needs (SetupOf):
//   the all-to-all of all columns stands for one collective, whichever those are.
// A stage's interval is the widest of those of the collectives that its placement has (the
// all-to-all where it has none); a collective that the manifest does not mention has the interval
// of the all-to-all. Permutation equivariant, but for the order in which doubles are added; rises
// with every rank's load; never negative.
class UniversalComm {
 public:
  static constexpr int kMaxRanks = 16384;

  // `file` has passed CheckNetworkTensors with UniversalCommTensors.
  UniversalComm(const UniversalCommManifest& manifest, const TrainedOnManifest& trained_on,
                const TensorFile& file);

  // At least two ranks. FAILED_PRECONDITION, saying which can be priced, when these cannot.
  StatusOr<std::shared_ptr<const CommModel>> Bind(const PricingConditions& conditions) const;

 private:
  std::shared_ptr<const UniversalCommNetworks> networks_;
};

}  // namespace neuroshard
