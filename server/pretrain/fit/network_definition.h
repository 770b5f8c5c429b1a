// The networks of the model format, as training sees them: their tensors, and how a trained number
// becomes the weight that is used. The tensors are those of server/networks/network_tensors.h, which
// serving reads; fit/torch_network.cc computes with them in libtorch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/random.h"
#include "server/networks/model_manifest.h"
#include "server/networks/network_tensors.h"
#include "server/networks/safetensors.h"
#include "server/pretrain/data/training_problem.h"

namespace neuroshard {

enum class NetworkKind {
  kTableSum,           // NeuroShard's compute network: head(sum over shards of table layers)
  kMlp,                // NeuroShard's communication network
  kUniversalTableSum,  // server/networks/network_compute.h
  kUniversalComm,      // server/networks/universal_comm.h, of one rank
};

// The tensors of one network, or of one member of an ensemble, in the order of its file and without
// what names the member; feature_mean and feature_std are not among them. All values of all tensors
// lie one after the other in one array of num_values() floats. Immutable; any thread.
struct NetworkDefinition {
  NetworkKind kind = NetworkKind::kTableSum;
  std::vector<TensorSpec> tensors;
  std::int64_t row_layers = 0;   // layers that each row goes through: "table.<i>" or "layer.<i>"
  std::int64_t head_layers = 0;  // "head.<i>" of kTableSum

  std::int64_t num_values() const;
  // Where the values of a tensor begin. The name must be of the network.
  std::int64_t OffsetOf(std::string_view name) const;
};

// Widths as manifests have them: first, hidden..., last.
std::vector<std::int64_t> LayersOf(std::int64_t first, const std::vector<int>& hidden,
                                   std::int64_t last);

NetworkDefinition DefinitionOf(const ComputeNetworkManifest& network);
NetworkDefinition DefinitionOf(const CommNetworkManifest& network);
NetworkDefinition DefinitionOf(const UniversalComputeManifest& network);
NetworkDefinition DefinitionOf(const UniversalCommManifest& network);

// Parameters are what is trained, weights what is computed with. They differ where a weight must
// not be negative (TensorSpec::non_negative_columns): the weight is exp(parameter) in
// kUniversalTableSum and |parameter| in kUniversalComm.
std::vector<float> WeightsOf(const NetworkDefinition& network, std::span<const float> parameters);
// Parameters that give these weights; 0 becomes a very small weight where it has to be above 0.
std::vector<float> ParametersOf(const NetworkDefinition& network, std::span<const float> weights);

// Uniform in +-1/sqrt(inputs) for weights and biases alike, as NeuroShard's implementation starts
// from (PyTorch's default); of universal networks, last layers that begin with small costs.
std::vector<float> InitialParameters(const NetworkDefinition& network, Random& random);

// The weights as tensors PREFIX + name of `file`: costs in ms, scale[output] of them for each unit
// that the network gives, and weights of 0 for columns that do not vary.
void AddNetwork(const NetworkDefinition& network, std::span<const float> weights,
                std::span<const double> scale, const Standardisation& standardisation,
                const std::string& prefix, TensorFile& file);

// The weights that AddNetwork made the tensors of, for training on from there; empty where the file
// has no such tensors, or of other shapes.
std::vector<float> ReadNetwork(const NetworkDefinition& network, const TensorFile& file,
                               const std::string& prefix, std::span<const double> scale);

}  // namespace neuroshard
