// The networks of the model format for training: their tensors, and the weights that trained
// parameters stand for. Serving reads the tensors by server/networks/network_tensors.h;
// fit/torch_network.cc computes with them in libtorch.
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

// The tensors of one network, or of one member of an ensemble, in the order of its file and without
// the member's prefix; feature_mean and feature_std are not among them. All values are contiguous
// in one array of num_values() floats. Immutable, so thread-safe.
struct NetworkDefinition {
  NetworkKind kind = NetworkKind::kTableSum;
  std::vector<TensorSpec> tensors;
  std::int64_t row_layers = 0;   // layers that each row goes through: "table.<i>" or "layer.<i>"
  std::int64_t head_layers = 0;  // "head.<i>" of kTableSum

  std::int64_t num_values() const;
  // Returns the position of a tensor's values. The name must be of the network.
  std::int64_t OffsetOf(std::string_view name) const;
};

// Returns widths as manifests have them: first, hidden..., last.
std::vector<std::int64_t> LayersOf(std::int64_t first, const std::vector<int>& hidden,
                                   std::int64_t last);

NetworkDefinition DefinitionOf(const NetworkManifest& network);

// Returns the weights, which networks compute with, for parameters, which are trained. They differ
// where a weight must not be negative (TensorSpec::non_negative_columns): the weight is
// exp(parameter) in kUniversalTableSum and |parameter| in kUniversalComm.
std::vector<float> WeightsOf(const NetworkDefinition& network, std::span<const float> parameters);
// Returns parameters with these weights; a weight of 0 becomes very small where it must be above 0.
std::vector<float> ParametersOf(const NetworkDefinition& network, std::span<const float> weights);

// Returns random parameters: uniform in +-1/sqrt(inputs) for weights and biases alike, as in
// NeuroShard's implementation (PyTorch's default); last layers of universal networks begin with
// small costs.
std::vector<float> InitialParameters(const NetworkDefinition& network, Random& random);

// Adds the weights to `file` as tensors PREFIX + name: costs in ms, scale[output] of them per unit
// of the network, and weights of 0 for columns that do not vary.
void AddNetwork(const NetworkDefinition& network, std::span<const float> weights,
                std::span<const double> scale, const Standardisation& standardisation,
                const std::string& prefix, TensorFile& file);

// Returns the weights that AddNetwork wrote, to go on from; empty where the file has no such
// tensors, or of other shapes.
std::vector<float> ReadNetwork(const NetworkDefinition& network, const TensorFile& file,
                               const std::string& prefix, std::span<const double> scale);

}  // namespace neuroshard
