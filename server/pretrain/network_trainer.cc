#include "server/pretrain/network_trainer.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/optim/adam.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/random.h"
#include "server/pretrain/torch_runtime.h"

namespace neuroshard {
namespace {

using torch::Tensor;

// Costs below this share of the mean cost are not held to a smaller relative error than it: a timer
// resolves them no better.
constexpr double kRelativeFloor = 0.01;
constexpr double kMinLearningRate = 1e-5;
// Forward passes that need no gradient run over at most this many rows at once.
constexpr std::size_t kEvaluationSamples = 8192;

// out[s] = sum of the rows segment_of maps to s; rows of a segment are contiguous and every segment
// is there. Tensor::index_add_ of libtorch 1.13 does one dispatch per row, which would be most of
// the training time.
class SegmentSum : public torch::autograd::Function<SegmentSum> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& rows,
                        const Tensor& segment_of, std::int64_t segments) {
    context->save_for_backward({segment_of});
    const Tensor input = rows.contiguous();
    Tensor output = torch::zeros({segments, rows.size(1)}, rows.options());
    const std::int64_t width = rows.size(1);
    const std::int64_t* segment = segment_of.data_ptr<std::int64_t>();
    const float* from = input.data_ptr<float>();
    float* to = output.data_ptr<float>();
    for (std::int64_t r = 0; r < rows.size(0); ++r) {
      float* sum = to + segment[r] * width;
      const float* row = from + r * width;
      for (std::int64_t c = 0; c < width; ++c) sum[c] += row[c];
    }
    return output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0].index_select(0, context->get_saved_variables()[0]), Tensor(), Tensor()};
  }
};

struct Layer {
  Tensor weight;
  Tensor bias;
};

// Uniform in +-1/sqrt(inputs) for weights and biases alike: what the paper's implementation starts
// from.
Layer MakeLayer(std::int64_t inputs, std::int64_t outputs, Random& random) {
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  const auto uniform = [&](std::vector<std::int64_t> shape) {
    Tensor tensor = torch::empty(shape);
    float* data = tensor.data_ptr<float>();
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      data[i] = static_cast<float>((2 * random.UniformReal() - 1) * bound);
    }
    return tensor;
  };
  Layer layer{uniform({outputs, inputs}), uniform({outputs})};
  layer.weight.set_requires_grad(true);
  layer.bias.set_requires_grad(true);
  return layer;
}

std::vector<Layer> MakeLayers(std::int64_t inputs, const std::vector<int>& widths, Random& random) {
  std::vector<Layer> layers;
  for (const int width : widths) {
    layers.push_back(MakeLayer(inputs, width, random));
    inputs = width;
  }
  return layers;
}

LinearLayer ToPlain(const Layer& layer) {
  const Tensor weight = layer.weight.detach().contiguous();
  const Tensor bias = layer.bias.detach().contiguous();
  const float* w = weight.data_ptr<float>();
  const float* b = bias.data_ptr<float>();
  return {weight.size(1), weight.size(0), std::vector<float>(w, w + weight.numel()),
          std::vector<float>(b, b + bias.numel())};
}

// Mean and standard deviation of every column over the rows that training samples use; a column
// that does not vary has deviation 0.
struct ColumnStatistics {
  std::vector<double> mean;
  std::vector<double> deviation;
};

ColumnStatistics MeasureColumns(const TrainingProblem& problem,
                                const std::vector<std::int64_t>& samples) {
  std::vector<char> used(problem.num_rows(), 0);
  for (const auto s : samples) {
    for (auto i = problem.sample_begin[s]; i < problem.sample_begin[s + 1]; ++i) {
      used[problem.sample_rows[i]] = 1;
    }
  }
  const std::int64_t columns = problem.num_columns();
  const double count = static_cast<double>(std::count(used.begin(), used.end(), 1));
  ColumnStatistics statistics{std::vector<double>(columns, 0), std::vector<double>(columns, 0)};
  for (std::int64_t c = 0; c < columns; ++c) {
    double sum = 0;
    float low = std::numeric_limits<float>::infinity();
    float high = -low;
    for (std::int64_t r = 0; r < problem.num_rows(); ++r) {
      if (!used[r]) continue;
      const float value = problem.rows[r * columns + c];
      sum += value;
      low = std::min(low, value);
      high = std::max(high, value);
    }
    const double mean = sum / count;
    statistics.mean[c] = mean;
    if (low == high) continue;
    double squares = 0;
    for (std::int64_t r = 0; r < problem.num_rows(); ++r) {
      if (!used[r]) continue;
      const double difference = problem.rows[r * columns + c] - mean;
      squares += difference * difference;
    }
    statistics.deviation[c] = std::sqrt(squares / (count - 1));
  }
  return statistics;
}

class Training {
 public:
  Training(const TrainingProblem& problem, const SampleSplit& split, const NetworkShape& shape,
           const OptimizationConfig& config, const StopSignal& stop, TrainingObserver* observer)
      : problem_(problem),
        split_(split),
        config_(config),
        stop_(stop),
        observer_(observer),
        random_(config.seed) {
    PrepareFeatures();
    PrepareTargets();
    PrepareLayers(shape);
  }

  StatusOr<TrainingResult> Run();

 private:
  void PrepareFeatures();
  void PrepareTargets();
  void PrepareLayers(const NetworkShape& shape);
  Tensor Forward(Tensor rows, const Tensor& segment_of, std::int64_t segments) const;
  // The loss of `samples`, averaged; with permuted ranks when `permute`.
  Tensor Loss(const std::int64_t* samples, std::size_t count, bool permute);
  double EvaluationLoss(const std::vector<std::int64_t>& samples);
  StatusOr<double> TrainEpoch(torch::optim::Adam& adam);
  TrainedNetwork Extract() const;

  const TrainingProblem& problem_;
  const SampleSplit& split_;
  const OptimizationConfig& config_;
  const StopSignal& stop_;
  TrainingObserver* observer_;
  Random random_;

  std::vector<float> mean_;
  std::vector<float> deviation_;  // 0: does not vary, ignored
  Tensor rows_;                   // [num_rows, columns], standardised
  Tensor targets_;                // [num_samples, outputs]
  Tensor weights_;  // of the squared errors; [num_samples, outputs (+ 1 for the total)]
  Tensor scale_;    // [outputs], ms per unit of network output
  std::vector<Layer> row_layers_;
  std::vector<Layer> head_layers_;
  std::vector<Tensor> parameters_;
};

void Training::PrepareFeatures() {
  const ColumnStatistics statistics = MeasureColumns(problem_, split_.train);
  const std::int64_t columns = problem_.num_columns();
  std::string constant;
  for (std::int64_t c = 0; c < columns; ++c) {
    mean_.push_back(static_cast<float>(statistics.mean[c]));
    const bool varies = statistics.deviation[c] > 0;
    deviation_.push_back(varies ? static_cast<float>(statistics.deviation[c] + 1e-6) : 0.0f);
    if (!varies) constant += (constant.empty() ? "" : ", ") + problem_.columns[c];
  }
  if (!constant.empty()) {
    observer_->OnWarning(
        fmt::format("{}: the same value in every training sample, so the network ignores: {}",
                    problem_.name, constant));
  }
  rows_ = torch::empty({problem_.num_rows(), columns});
  float* standardised = rows_.data_ptr<float>();
  for (std::int64_t r = 0; r < problem_.num_rows(); ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t at = r * columns + c;
      standardised[at] = deviation_[c] > 0 ? (problem_.rows[at] - mean_[c]) / deviation_[c] : 0.0f;
    }
  }
}

void Training::PrepareTargets() {
  targets_ = torch::tensor(problem_.targets).view({problem_.num_samples(), problem_.outputs});
  const Tensor train = torch::tensor(split_.train);
  scale_ = torch::ones({problem_.outputs});
  if (config_.scale_targets) scale_ = targets_.index_select(0, train).mean(0).clamp_min(1e-9);
  Tensor all = targets_;
  if (problem_.total_counts) all = torch::cat({all, all.sum(1, true)}, 1);
  if (config_.loss == TrainingLoss::kRelative) {
    const Tensor floor = (all.index_select(0, train).mean(0) * kRelativeFloor).clamp_min(1e-9);
    weights_ = torch::maximum(all, floor).pow(-2);
  } else {
    weights_ = torch::ones_like(all);
  }
}

void Training::PrepareLayers(const NetworkShape& shape) {
  row_layers_ = MakeLayers(problem_.num_columns(), shape.row_hidden, random_);
  std::vector<int> head = shape.head_hidden;
  head.push_back(problem_.outputs);
  const std::int64_t head_inputs =
      shape.row_hidden.empty() ? problem_.num_columns() : shape.row_hidden.back();
  head_layers_ = MakeLayers(head_inputs, head, random_);
  for (auto* layers : {&row_layers_, &head_layers_}) {
    for (const Layer& layer : *layers) {
      parameters_.push_back(layer.weight);
      parameters_.push_back(layer.bias);
    }
  }
}

Tensor Training::Forward(Tensor rows, const Tensor& segment_of, std::int64_t segments) const {
  for (const Layer& layer : row_layers_) {
    rows = torch::relu(torch::addmm(layer.bias, rows, layer.weight.t()));
  }
  if (!row_layers_.empty()) rows = SegmentSum::apply(rows, segment_of, segments);
  for (std::size_t i = 0; i < head_layers_.size(); ++i) {
    rows = torch::addmm(head_layers_[i].bias, rows, head_layers_[i].weight.t());
    if (i + 1 < head_layers_.size()) rows = torch::relu(rows);
  }
  return rows * scale_;
}

Tensor Training::Loss(const std::int64_t* samples, std::size_t count, bool permute) {
  std::vector<std::int64_t> row_ids;
  std::vector<std::int64_t> segment_of;
  for (std::size_t i = 0; i < count; ++i) {
    for (auto k = problem_.sample_begin[samples[i]]; k < problem_.sample_begin[samples[i] + 1];
         ++k) {
      row_ids.push_back(problem_.sample_rows[k]);
      segment_of.push_back(static_cast<std::int64_t>(i));
    }
  }
  const auto segments = static_cast<std::int64_t>(count);
  const Tensor index = torch::tensor(std::vector<std::int64_t>(samples, samples + count));
  Tensor rows = rows_.index_select(0, torch::tensor(row_ids));
  Tensor targets = targets_.index_select(0, index);
  Tensor weights = weights_.index_select(0, index);
  if (permute) {
    const std::int64_t ranks = problem_.interchangeable_ranks;
    std::vector<std::int64_t> order(ranks);
    std::vector<std::int64_t> orders;
    for (std::size_t i = 0; i < count; ++i) {
      for (std::int64_t r = 0; r < ranks; ++r) order[r] = r;
      random_.Shuffle(order);
      orders.insert(orders.end(), order.begin(), order.end());
    }
    const Tensor by_rank = torch::tensor(orders).view({segments, ranks});
    targets = targets.gather(1, by_rank);
    weights = weights.gather(1, by_rank);
    const std::int64_t blocks = problem_.num_columns() / ranks;
    rows = rows.view({segments, blocks, ranks})
               .gather(2, by_rank.unsqueeze(1).expand({segments, blocks, ranks}))
               .reshape({segments, blocks * ranks});
  }
  Tensor error = Forward(rows, torch::tensor(segment_of), segments) - targets;
  if (problem_.total_counts) error = torch::cat({error, error.sum(1, true)}, 1);
  return (weights * error * error).mean();
}

double Training::EvaluationLoss(const std::vector<std::int64_t>& samples) {
  torch::NoGradGuard no_gradients;
  double sum = 0;
  for (std::size_t begin = 0; begin < samples.size(); begin += kEvaluationSamples) {
    const std::size_t count = std::min(kEvaluationSamples, samples.size() - begin);
    sum += Loss(samples.data() + begin, count, false).item<double>() * static_cast<double>(count);
  }
  return sum / static_cast<double>(samples.size());
}

StatusOr<double> Training::TrainEpoch(torch::optim::Adam& adam) {
  std::vector<std::int64_t> order = split_.train;
  random_.Shuffle(order);
  const bool permute = config_.permute_ranks && problem_.interchangeable_ranks > 0;
  const auto batch = static_cast<std::size_t>(config_.batch_samples);
  double sum = 0;
  for (std::size_t begin = 0; begin < order.size(); begin += batch) {
    if (stop_.ShouldStop()) return absl::CancelledError("training was interrupted");
    const std::size_t count = std::min(batch, order.size() - begin);
    adam.zero_grad();
    const Tensor loss = Loss(order.data() + begin, count, permute);
    loss.backward();
    adam.step();
    sum += loss.item<double>() * static_cast<double>(count);
  }
  return sum / static_cast<double>(order.size());
}

TrainedNetwork Training::Extract() const {
  TrainedNetwork network{mean_, deviation_, {}, {}};
  for (const Layer& layer : row_layers_) network.row_layers.push_back(ToPlain(layer));
  for (const Layer& layer : head_layers_) network.head_layers.push_back(ToPlain(layer));
  LinearLayer& first =
      network.row_layers.empty() ? network.head_layers.front() : network.row_layers.front();
  for (std::int64_t c = 0; c < problem_.num_columns(); ++c) {
    if (deviation_[c] > 0) continue;
    network.feature_std[c] = 1;
    for (std::int64_t o = 0; o < first.outputs; ++o) first.weight[o * first.inputs + c] = 0;
  }
  LinearLayer& last = network.head_layers.back();
  const float* scale = scale_.data_ptr<float>();
  for (std::int64_t o = 0; o < last.outputs; ++o) {
    last.bias[o] *= scale[o];
    for (std::int64_t i = 0; i < last.inputs; ++i) last.weight[o * last.inputs + i] *= scale[o];
  }
  return network;
}

StatusOr<TrainingResult> Training::Run() {
  torch::optim::Adam adam(parameters_, torch::optim::AdamOptions(config_.learning_rate));
  auto& options = static_cast<torch::optim::AdamOptions&>(adam.param_groups().front().options());
  EpochReport report{
      problem_.name, 0, config_.max_epochs, 0, 0, std::numeric_limits<double>::infinity(), 0};
  TrainedNetwork best;
  std::int64_t decayed_at = 0;
  std::string reason = "all epochs done";
  for (std::int64_t epoch = 1; epoch <= config_.max_epochs; ++epoch) {
    report.epoch = epoch;
    NS_ASSIGN_OR_RETURN(report.train_loss, TrainEpoch(adam));
    report.validation_loss = EvaluationLoss(split_.validation);
    if (!std::isfinite(report.train_loss) || !std::isfinite(report.validation_loss)) {
      return Internal(
          "{}: the loss is not finite in epoch {} (train {}, validation {}); lower learning_rate",
          problem_.name, epoch, report.train_loss, report.validation_loss);
    }
    if (report.validation_loss < report.best_validation_loss) {
      report.best_validation_loss = report.validation_loss;
      report.best_epoch = epoch;
      best = Extract();
    }
    observer_->OnEpoch(report);
    if (epoch - report.best_epoch >= config_.patience_epochs) {
      reason = fmt::format("stopped early: no better validation loss for {} epochs",
                           config_.patience_epochs);
      break;
    }
    if (config_.learning_rate_decay < 1 &&
        epoch - std::max(report.best_epoch, decayed_at) >= config_.decay_patience_epochs) {
      options.lr(std::max(kMinLearningRate, options.lr() * config_.learning_rate_decay));
      decayed_at = epoch;
    }
  }
  observer_->OnFinished(report, reason);
  return TrainingResult{std::move(best), report.epoch, report.best_epoch,
                        report.best_validation_loss};
}

}  // namespace

StatusOr<TrainingResult> TrainNetwork(const TrainingProblem& problem, const SampleSplit& split,
                                      const NetworkShape& shape, const OptimizationConfig& config,
                                      const StopSignal& stop, TrainingObserver* observer) {
  if (split.train.size() < 2 || split.validation.empty()) {
    return InvalidArgument("{}: {} training and {} validation samples are too few to learn from",
                           problem.name, split.train.size(), split.validation.size());
  }
  try {
    ConfigureTorchRuntime();
    return Training(problem, split, shape, config, stop, observer).Run();
  } catch (const std::exception& error) {  // c10::Error is one
    return Internal("{}: libtorch: {}", problem.name, error.what());
  }
}

}  // namespace neuroshard
