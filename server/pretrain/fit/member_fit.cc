#include "server/pretrain/fit/member_fit.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "server/pretrain/fit/fit_loss.h"

namespace neuroshard {
namespace {

constexpr double kMinLearningRate = 1e-5;
// A batch is cut into slices of at least this many samples, which threads share. The number does
// not depend on the machine, so that the sums do not either; smaller slices would save less by
// computing the rows that samples share once.
constexpr std::int64_t kMinSliceSamples = 256;
constexpr std::int64_t kMaxSlices = 16;

std::uint64_t MixSeed(std::uint64_t seed, std::uint64_t value) {
  return Random(seed ^ (value * 0x9e3779b97f4a7c15ULL + 0x632be59bd9b4e019ULL)).Next();
}

// Part i of n about equal parts.
std::span<const std::int64_t> Part(std::span<const std::int64_t> all, std::size_t i,
                                   std::size_t n) {
  const std::size_t begin = all.size() * i / n;
  return all.subspan(begin, all.size() * (i + 1) / n - begin);
}

}  // namespace

MemberState InitialState(const NetworkGraph& graph, const OptimizationConfig& config,
                         std::uint64_t seed) {
  MemberState state;
  Random random(seed);
  state.parameters = graph.InitialParameters(random);
  state.learning_rate = config.learning_rate;
  return state;
}

MemberFit::MemberFit(const FitProblem& problem, const SampleSplit& split, const NetworkGraph& graph,
                     const OptimizationConfig& config, std::uint64_t seed)
    : problem_(problem), split_(split), graph_(graph), config_(config), seed_(seed) {
  const std::int64_t slices =
      std::clamp<std::int64_t>(config.batch_samples / kMinSliceSamples, 1, kMaxSlices);
  for (std::int64_t i = 0; i < slices; ++i) {
    slices_.push_back(std::make_unique<Slice>(problem, graph));
  }
  gradient_.resize(graph.num_parameters());
  weights_.resize(graph.num_parameters());
  const std::size_t parts =
      (split.validation.size() + kMinSliceSamples - 1) / static_cast<std::size_t>(kMinSliceSamples);
  validation_.resize(parts);
  validation_losses_.resize(parts);
  for (std::size_t i = 0; i < parts; ++i) {
    slices_[0]->builder.Build(Part(split.validation, i, parts), nullptr, validation_[i]);
  }
}

double MemberFit::LearningRate(const MemberState& state) const {
  if (config_.schedule == LearningRateSchedule::kPlateau) return state.learning_rate;
  const auto batches =
      (static_cast<std::int64_t>(split_.train.size()) + config_.batch_samples - 1) /
      config_.batch_samples;
  const double done =
      static_cast<double>(state.adam.steps) / static_cast<double>(batches * config_.max_epochs);
  return config_.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * std::min(done, 1.0)));
}

Status MemberFit::RunEpoch(const StopSignal& stop, WorkerTeam& team, MemberState& state) {
  const MemberState before = state;
  const std::uint64_t epoch_seed = MixSeed(seed_, static_cast<std::uint64_t>(++state.epoch));
  std::vector<std::int64_t> order = split_.train;
  Random(epoch_seed).Shuffle(order);
  const auto batch_size = static_cast<std::size_t>(config_.batch_samples);
  double sum = 0;
  for (std::size_t begin = 0; begin < order.size(); begin += batch_size) {
    if (stop.ShouldStop()) {
      state = before;
      return absl::CancelledError("training was interrupted");
    }
    const auto batch = std::span(order).subspan(begin, std::min(batch_size, order.size() - begin));
    sum += TrainBatch(batch, MixSeed(epoch_seed, begin), team, state);
  }
  const auto targets = static_cast<double>(problem_.weight_columns());
  state.train_loss = sum / static_cast<double>(order.size()) / targets;
  state.validation_loss = ValidationLoss(team, state.parameters);
  if (!std::isfinite(state.train_loss) || !std::isfinite(state.validation_loss)) {
    return Internal(
        "the loss is not finite in epoch {} (train {}, validation {}); lower "
        "learning_rate",
        state.epoch, state.train_loss, state.validation_loss);
  }
  if (state.validation_loss < state.best_validation_loss) {
    state.best_validation_loss = state.validation_loss;
    state.best_epoch = state.epoch;
    state.best_parameters = state.parameters;
  }
  if (config_.schedule == LearningRateSchedule::kPlateau && config_.learning_rate_decay < 1 &&
      state.epoch - std::max(state.best_epoch, state.decayed_epoch) >=
          config_.decay_patience_epochs) {
    state.learning_rate =
        std::max(kMinLearningRate, state.learning_rate * config_.learning_rate_decay);
    state.decayed_epoch = state.epoch;
  }
  return absl::OkStatus();
}

void MemberFit::RunSlice(std::span<const std::int64_t> samples, std::size_t batch_size,
                         std::uint64_t permutation_seed, const std::vector<float>& weights,
                         Slice& slice) {
  Random permutations(permutation_seed);
  slice.builder.Build(samples, config_.permute_ranks ? &permutations : nullptr, slice.batch);
  std::fill(slice.gradient.begin(), slice.gradient.end(), 0.0f);
  const std::span<const float> outputs = slice.pass.Forward(weights, slice.batch);
  slice.output_gradient.resize(outputs.size());
  const double targets =
      static_cast<double>(batch_size) * static_cast<double>(problem_.weight_columns());
  slice.loss = FitLossOf(problem_, slice.batch, outputs, static_cast<float>(1 / targets),
                         slice.output_gradient);
  slice.pass.Backward(weights, slice.batch, slice.output_gradient, slice.gradient);
}

double MemberFit::TrainBatch(std::span<const std::int64_t> samples, std::uint64_t permutation_seed,
                             WorkerTeam& team, MemberState& state) {
  const std::size_t slices = std::min(slices_.size(), samples.size());
  graph_.ToWeights(state.parameters, weights_);
  team.Run(static_cast<int>(slices), [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    RunSlice(Part(samples, at, slices), samples.size(), permutation_seed + at, weights_,
             *slices_[at]);
  });
  double loss = 0;
  for (std::size_t i = 0; i < slices; ++i) {
    loss += slices_[i]->loss;
    if (i == 0) {
      gradient_ = slices_[i]->gradient;
      continue;
    }
    for (std::size_t p = 0; p < gradient_.size(); ++p) gradient_[p] += slices_[i]->gradient[p];
  }
  graph_.ToParameterGradient(state.parameters, weights_, gradient_);
  AdamStep(gradient_, LearningRate(state), state.adam, state.parameters);
  return loss;
}

double MemberFit::ValidationLoss(WorkerTeam& team, const std::vector<float>& parameters) {
  const auto slices = slices_.size();
  graph_.ToWeights(parameters, weights_);
  team.Run(static_cast<int>(slices), [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    for (std::size_t part = at; part < validation_.size(); part += slices) {
      const auto outputs = slices_[at]->pass.Forward(weights_, validation_[part]);
      validation_losses_[part] = FitLossOf(problem_, validation_[part], outputs, 0, {});
    }
  });
  double sum = 0;
  for (const double loss : validation_losses_) sum += loss;
  return sum / static_cast<double>(split_.validation.size()) /
         static_cast<double>(problem_.weight_columns());
}

}  // namespace neuroshard
