#include "server/pretrain/fit/adam.h"

#include <cassert>
#include <cmath>
#include <cstddef>

namespace neuroshard {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr float kEpsilon = 1e-8f;

}  // namespace

void AdamStep(std::span<const float> gradient, double learning_rate, AdamState& state,
              std::span<float> parameters) {
  assert(gradient.size() == parameters.size());
  state.first_moment.resize(parameters.size(), 0);
  state.second_moment.resize(parameters.size(), 0);
  ++state.steps;
  const auto steps = static_cast<double>(state.steps);
  const auto step_size = static_cast<float>(learning_rate / (1 - std::pow(kBeta1, steps)));
  const auto correction = static_cast<float>(1 / std::sqrt(1 - std::pow(kBeta2, steps)));
  constexpr auto kKeep1 = static_cast<float>(kBeta1);
  constexpr auto kKeep2 = static_cast<float>(kBeta2);
  float* first = state.first_moment.data();
  float* second = state.second_moment.data();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float g = gradient[i];
    first[i] = kKeep1 * first[i] + (1 - kKeep1) * g;
    second[i] = kKeep2 * second[i] + (1 - kKeep2) * g * g;
    parameters[i] -= step_size * first[i] / (std::sqrt(second[i]) * correction + kEpsilon);
  }
}

}  // namespace neuroshard
