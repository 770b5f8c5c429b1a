#include "server/pretrain/fit/member_fit.h"

#include <ATen/core/grad_mode.h>
#include <torch/optim/adam.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace neuroshard {
namespace {

constexpr double kMinLearningRate = 1e-5;
constexpr std::size_t kValidationBatch = 1024;

std::uint64_t MixSeed(std::uint64_t seed, std::uint64_t value) {
  return Random(seed ^ (value * 0x9e3779b97f4a7c15ULL + 0x632be59bd9b4e019ULL)).Next();
}

std::span<const std::int64_t> Part(std::span<const std::int64_t> all, std::size_t begin,
                                   std::size_t size) {
  return all.subspan(begin, std::min(size, all.size() - begin));
}

// torch::optim::Adam over all parameters as one tensor.
class AdamRun {
 public:
  explicit AdamRun(const MemberState& state)
      : parameters_(ToTensor(state.parameters).set_requires_grad(true)),
        adam_({parameters_}, torch::optim::AdamOptions(state.learning_rate)) {
    auto moments = std::make_unique<torch::optim::AdamParamState>();
    moments->step(state.steps);
    moments->exp_avg(ToTensor(state.first_moment));
    moments->exp_avg_sq(ToTensor(state.second_moment));
    adam_.state()[Key()] = std::move(moments);
  }

  const at::Tensor& parameters() const { return parameters_; }

  // By the gradient of factor * loss.
  void Step(const at::Tensor& loss, double factor, double learning_rate) {
    parameters_.mutable_grad().reset();
    loss.backward(at::full({}, factor));
    adam_.param_groups()[0].options().set_lr(learning_rate);
    adam_.step();
  }

  void Save(MemberState& state) {
    const auto& moments = static_cast<const torch::optim::AdamParamState&>(*adam_.state()[Key()]);
    state.parameters = ToVector(parameters_);
    state.steps = moments.step();
    state.first_moment = ToVector(moments.exp_avg());
    state.second_moment = ToVector(moments.exp_avg_sq());
  }

 private:
  std::string Key() const { return c10::guts::to_string(parameters_.unsafeGetTensorImpl()); }

  at::Tensor parameters_;
  torch::optim::Adam adam_;
};

}  // namespace

MemberFit::MemberFit(const TrainingProblem& problem, const SampleSplit& split,
                     const NetworkDefinition& network, const OptimizationConfig& config,
                     std::uint64_t seed)
    : split_(split),
      config_(config),
      seed_(seed),
      weight_columns_(static_cast<double>(problem.weight_columns())),
      problem_(problem, config.loss),
      network_(network) {
  for (std::size_t begin = 0; begin < split.validation.size(); begin += kValidationBatch) {
    validation_.push_back(problem_.Batch(Part(split.validation, begin, kValidationBatch), nullptr));
  }
}

double MemberFit::LearningRate(const MemberState& state) const {
  if (config_.schedule == LearningRateSchedule::kPlateau) return state.learning_rate;
  const auto batches =
      (static_cast<std::int64_t>(split_.train.size()) + config_.batch_samples - 1) /
      config_.batch_samples;
  const double done =
      static_cast<double>(state.steps) / static_cast<double>(batches * config_.max_epochs);
  return config_.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * std::min(done, 1.0)));
}

// The mean loss over the epoch; parameters, moments and steps of `state` are those after it.
StatusOr<double> MemberFit::TrainEpoch(const StopSignal& stop, MemberState& state) {
  const std::uint64_t epoch_seed = MixSeed(seed_, static_cast<std::uint64_t>(state.epoch));
  std::vector<std::int64_t> order = split_.train;
  Random(epoch_seed).Shuffle(order);
  AdamRun optimizer(state);
  double sum = 0;
  const auto batch_size = static_cast<std::size_t>(config_.batch_samples);
  for (std::size_t begin = 0; begin < order.size(); begin += batch_size) {
    if (stop.ShouldStop()) return absl::CancelledError("training was interrupted");
    Random permutations(MixSeed(epoch_seed, begin));
    const auto samples = Part(order, begin, batch_size);
    const TorchBatch batch =
        problem_.Batch(samples, config_.permute_ranks ? &permutations : nullptr);
    const at::Tensor weights = network_.Weights(optimizer.parameters());
    const at::Tensor loss = problem_.LossOf(network_.Forward(weights, batch), batch);
    const auto targets = static_cast<double>(samples.size()) * weight_columns_;
    optimizer.Step(loss, 1 / targets, LearningRate(state));
    ++state.steps;
    sum += loss.item<float>();
  }
  optimizer.Save(state);
  return sum / static_cast<double>(order.size()) / weight_columns_;
}

double MemberFit::ValidationLoss(const std::vector<float>& parameters) const {
  const at::NoGradGuard no_gradients;
  const at::Tensor weights = network_.Weights(ToTensor(parameters));
  double sum = 0;
  for (const TorchBatch& batch : validation_) {
    sum += problem_.LossOf(network_.Forward(weights, batch), batch).item<float>();
  }
  return sum / static_cast<double>(split_.validation.size()) / weight_columns_;
}

Status MemberFit::RunEpoch(const StopSignal& stop, MemberState& state) {
  MemberState next = state;
  ++next.epoch;
  try {
    NS_ASSIGN_OR_RETURN(next.train_loss, TrainEpoch(stop, next));
    next.validation_loss = ValidationLoss(next.parameters);
  } catch (const c10::Error& error) {
    return Internal("libtorch: {}", error.what_without_backtrace());
  }
  if (!std::isfinite(next.train_loss) || !std::isfinite(next.validation_loss)) {
    return Internal(
        "the loss is not finite in epoch {} (train {}, validation {}); lower learning_rate",
        next.epoch, next.train_loss, next.validation_loss);
  }
  if (next.validation_loss < next.best_validation_loss) {
    next.best_validation_loss = next.validation_loss;
    next.best_epoch = next.epoch;
    next.best_parameters = next.parameters;
  }
  if (config_.schedule == LearningRateSchedule::kPlateau && config_.learning_rate_decay < 1 &&
      next.epoch - std::max(next.best_epoch, next.decayed_epoch) >= config_.decay_patience_epochs) {
    next.learning_rate =
        std::max(kMinLearningRate, next.learning_rate * config_.learning_rate_decay);
    next.decayed_epoch = next.epoch;
  }
  state = std::move(next);
  return absl::OkStatus();
}

}  // namespace neuroshard
