#include "server/pretrain/fit/torch_network.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "server/pretrain/fit/fit_run.h"

namespace neuroshard {
namespace {

// Bounds of what goes into an exponential, as in serving: costs beyond them are no costs.
constexpr double kMinExponent = -20;
constexpr double kMaxPhiExponent = 10;
constexpr double kMaxCommExponent = 12;

constexpr std::size_t kSamplesAtOnce = 1024;

void UseOneThread() {
  at::set_num_threads(1);
  // Which BLAS is installed is known at run time only.
  using SetThreads = void (*)(int);
  if (void* symbol = dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) {
    reinterpret_cast<SetThreads>(symbol)(1);
  }
}

at::Tensor ToMatrix(std::span<const float> values, std::int64_t rows, std::int64_t columns) {
  return ToTensor(values).view({rows, columns});
}

at::Tensor ToTensor(const std::vector<std::int64_t>& values) {
  at::Tensor tensor = at::empty({std::ssize(values)}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<std::int64_t>());
  return tensor;
}

// Takes the tensors of a network one after the other.
class LayerReader {
 public:
  LayerReader(const NetworkDefinition& network, std::vector<at::Tensor> tensors)
      : network_(network), tensors_(std::move(tensors)) {}

  at::Tensor Take() {
    const std::vector<std::int64_t>& shape = network_.tensors[next_].shape;
    const at::Tensor& tensor = tensors_[next_++];
    return shape.size() == 1 ? tensor : tensor.view(shape);
  }
  at::Tensor Linear(const at::Tensor& x) {
    const at::Tensor weight = Take();
    return at::linear(x, weight, Take());
  }
  // ReLU between the layers, not after the last one.
  at::Tensor Mlp(at::Tensor x, std::int64_t layers) {
    for (std::int64_t i = 0; i + 1 < layers; ++i) x = at::relu(Linear(x));
    return Linear(x);
  }

 private:
  const NetworkDefinition& network_;
  std::vector<at::Tensor> tensors_;
  std::size_t next_ = 0;
};

at::Tensor SumOverRows(const at::Tensor& phi, const TorchBatch& batch) {
  if (!batch.row_of.defined()) return phi;
  constexpr std::int64_t kSum = 0;
  return std::get<0>(at::embedding_bag(phi, batch.row_of, batch.begin, false, kSum));
}

// The weights have their units' signs (SignsOf), so that all hidden units are ReLUs.
at::Tensor UniversalComm(const NetworkDefinition& network, LayerReader& layers,
                         const TorchBatch& batch) {
  const at::Tensor log_cost = layers.Mlp(batch.rows, network.row_layers);
  const at::Tensor cost = at::hardtanh(log_cost, kMinExponent, kMaxCommExponent).exp();
  const at::Tensor wait_scale = layers.Take();
  const at::Tensor wait_and_floor = at::cat({wait_scale, layers.Take()}, 0);
  return at::addmm(cost, batch.sample_values, wait_and_floor.unsqueeze(1));
}

// The signs of the weights of kUniversalComm: -1 where one of the two units that a weight joins is
// a min(x, 0) unit, the second half of each hidden layer, and the other is not; otherwise 1. The
// network with these signs has ReLUs alone, as min(x, 0) = -max(-x, 0): fewer operations.
at::Tensor SignsOf(const NetworkDefinition& network) {
  at::Tensor signs = at::ones({network.num_values()});
  at::Tensor inputs = at::ones({network.tensors.front().shape[1]});
  for (std::int64_t layer = 0; layer < network.row_layers; ++layer) {
    const TensorSpec& weight = network.tensors[static_cast<std::size_t>(2 * layer)];
    const TensorSpec& bias = network.tensors[static_cast<std::size_t>(2 * layer + 1)];
    const std::int64_t units = weight.shape[0];
    at::Tensor outputs = at::ones({units});
    if (layer + 1 < network.row_layers) outputs.slice(0, (units + 1) / 2).fill_(-1);
    const std::int64_t begin = network.OffsetOf(weight.name);
    const std::int64_t bias_begin = network.OffsetOf(bias.name);
    signs.slice(0, begin, bias_begin).copy_(at::outer(outputs, inputs).view(-1));
    signs.slice(0, bias_begin, bias_begin + units).copy_(outputs);
    inputs = outputs;
  }
  return signs;
}

at::Tensor UniversalTableSum(const NetworkDefinition& network, LayerReader& layers,
                             const TorchBatch& batch) {
  const at::Tensor log_phi =
      at::hardtanh(layers.Mlp(batch.rows, network.row_layers), kMinExponent, kMaxPhiExponent);
  const at::Tensor sum = SumOverRows(log_phi.exp(), batch);
  const at::Tensor hidden = at::relu(layers.Linear(sum));
  const at::Tensor convex = at::linear(hidden, layers.Take());
  return convex + layers.Linear(sum);
}

}  // namespace

at::Tensor ToTensor(std::span<const float> values) {
  at::Tensor tensor = at::empty({std::ssize(values)}, at::kFloat);
  std::copy(values.begin(), values.end(), tensor.data_ptr<float>());
  return tensor;
}

std::vector<float> ToVector(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().contiguous();
  const float* values = plain.data_ptr<float>();
  return {values, values + plain.numel()};
}

TorchProblem::TorchProblem(const TrainingProblem& problem, TrainingLoss loss)
    : problem_(problem),
      loss_(loss),
      one_row_each_(problem.sample_rows.size() == static_cast<std::size_t>(problem.num_samples())),
      rows_(ToMatrix(problem.rows, problem.num_rows(), problem.num_columns())),
      sample_values_(
          ToMatrix(problem.sample_values, problem.num_samples(), problem.sample_columns)),
      targets_(ToMatrix(problem.targets, problem.num_samples(), problem.outputs)),
      weights_(ToMatrix(problem.weights, problem.num_samples(), problem.weight_columns())),
      scale_(ToTensor(std::vector<float>(problem.scale.begin(), problem.scale.end()))),
      placed_in_(static_cast<std::size_t>(problem.num_rows()), 0),
      place_(placed_in_.size()) {
  UseOneThread();
  if (problem.total_counts) targets_ = at::cat({targets_, targets_.sum(1, true)}, 1);
  if (loss == TrainingLoss::kLogRatio) targets_ = (targets_ + problem.floor_ms).log();
  for (std::int64_t s = 0; s < problem.num_samples() && one_row_each_; ++s) {
    one_row_each_ = problem.sample_begin[s + 1] - problem.sample_begin[s] == 1;
  }
}

void TorchProblem::AddRows(std::span<const std::int64_t> samples, TorchBatch& batch) {
  ++batch_number_;
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> row_of;
  std::vector<std::int64_t> begin;
  for (const std::int64_t sample : samples) {
    begin.push_back(std::ssize(row_of));
    for (auto i = problem_.sample_begin[sample]; i < problem_.sample_begin[sample + 1]; ++i) {
      const std::int64_t row = problem_.sample_rows[i];
      if (placed_in_[row] != batch_number_) {
        placed_in_[row] = batch_number_;
        place_[row] = std::ssize(rows);
        rows.push_back(row);
      }
      row_of.push_back(place_[row]);
    }
  }
  batch.rows = rows_.index_select(0, ToTensor(rows));
  batch.row_of = ToTensor(row_of);
  batch.begin = ToTensor(begin);
}

TorchBatch TorchProblem::Batch(std::span<const std::int64_t> samples, Random* permutations) {
  const at::Tensor which = ToTensor(std::vector<std::int64_t>(samples.begin(), samples.end()));
  TorchBatch batch;
  if (one_row_each_) {
    std::vector<std::int64_t> rows;
    for (const std::int64_t sample : samples) {
      rows.push_back(problem_.sample_rows[problem_.sample_begin[sample]]);
    }
    batch.rows = rows_.index_select(0, ToTensor(rows));
  } else {
    AddRows(samples, batch);
  }
  if (problem_.sample_columns > 0) batch.sample_values = sample_values_.index_select(0, which);
  batch.targets = targets_.index_select(0, which);
  batch.weights = weights_.index_select(0, which);
  if (permutations != nullptr && problem_.interchangeable_ranks > 0) Permute(*permutations, batch);
  return batch;
}

// A sample is one row here, of blocks of ranks.
void TorchProblem::Permute(Random& random, TorchBatch& batch) const {
  const std::int64_t ranks = problem_.interchangeable_ranks;
  const std::int64_t samples = batch.rows.size(0);
  std::vector<std::int64_t> order(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> orders;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    std::iota(order.begin(), order.end(), std::int64_t{0});
    random.Shuffle(order);
    orders.insert(orders.end(), order.begin(), order.end());
  }
  const at::Tensor of_rank = ToTensor(orders).view({samples, ranks});
  const std::int64_t blocks = problem_.num_columns() / ranks;
  batch.rows = batch.rows.view({samples, blocks, ranks})
                   .gather(2, of_rank.unsqueeze(1).expand({samples, blocks, ranks}))
                   .view({samples, blocks * ranks});
  batch.targets = batch.targets.gather(1, of_rank);
  batch.weights = batch.weights.gather(1, of_rank);
}

at::Tensor TorchProblem::LossOf(const at::Tensor& outputs, const TorchBatch& batch) const {
  at::Tensor costs = CostsOf(outputs);
  if (problem_.total_counts) costs = at::cat({costs, costs.sum(1, true)}, 1);
  if (loss_ == TrainingLoss::kLogRatio) costs = (costs + problem_.floor_ms).log();
  const at::Tensor errors = costs - batch.targets;
  return at::dot((loss_ == TrainingLoss::kLogRatio ? errors.abs() : errors.square()).view(-1),
                 batch.weights.view(-1));
}

TorchNetwork::TorchNetwork(const NetworkDefinition& network) : network_(network) {
  for (const TensorSpec& tensor : network.tensors) sizes_.push_back(tensor.count());
  // With all parameters negative, only the weights that may not be negative are above 0.
  const std::vector<float> negative(static_cast<std::size_t>(network.num_values()), -1.0f);
  non_negative_ = ToTensor(WeightsOf(network, negative)) > 0;
  if (network.kind == NetworkKind::kUniversalComm) signs_ = SignsOf(network);
}

at::Tensor TorchNetwork::Weights(const at::Tensor& parameters) const {
  switch (network_.kind) {
    case NetworkKind::kUniversalTableSum:
      // Where it is not taken, exp(0): it and its gradient are finite whatever the parameter.
      return at::where(non_negative_, (parameters * non_negative_).exp(), parameters);
    case NetworkKind::kUniversalComm:
      return at::where(non_negative_, parameters.abs(), parameters);
    case NetworkKind::kTableSum:
    case NetworkKind::kDeviceCount:
      break;
  }
  return parameters;
}

at::Tensor TorchNetwork::Forward(const at::Tensor& weights, const TorchBatch& batch) const {
  const bool signed_units = network_.kind == NetworkKind::kUniversalComm;
  LayerReader layers(network_,
                     (signed_units ? weights * signs_ : weights).unsafe_split_with_sizes(sizes_));
  switch (network_.kind) {
    case NetworkKind::kTableSum: {
      const at::Tensor phi = at::relu(layers.Mlp(batch.rows, network_.row_layers));
      return layers.Mlp(SumOverRows(phi, batch), network_.head_layers);
    }
    case NetworkKind::kDeviceCount:
      return layers.Mlp(batch.rows, network_.row_layers);
    case NetworkKind::kUniversalTableSum:
      return UniversalTableSum(network_, layers, batch);
    case NetworkKind::kUniversalComm:
      return UniversalComm(network_, layers, batch);
  }
  return {};
}

std::vector<double> PredictCosts(const TrainingProblem& problem, const NetworkDefinition& network,
                                 std::span<const float> weights,
                                 std::span<const std::int64_t> samples) {
  const c10::InferenceMode no_gradients;
  TorchProblem tensors(problem, TrainingLoss::kMse);
  const TorchNetwork torch_network(network);
  const at::Tensor values = ToTensor(weights);
  std::vector<double> predictions;
  for (std::size_t begin = 0; begin < samples.size(); begin += kSamplesAtOnce) {
    const auto part = samples.subspan(begin, std::min(kSamplesAtOnce, samples.size() - begin));
    const TorchBatch batch = tensors.Batch(part, nullptr);
    const auto costs = ToVector(tensors.CostsOf(torch_network.Forward(values, batch)));
    predictions.insert(predictions.end(), costs.begin(), costs.end());
  }
  return predictions;
}

}  // namespace neuroshard
