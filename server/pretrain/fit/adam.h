// Adam (Kingma and Ba, 2015) over a flat array of parameters.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace neuroshard {

struct AdamState {
  std::vector<float> first_moment;  // of each parameter
  std::vector<float> second_moment;
  std::int64_t steps = 0;

  bool operator==(const AdamState&) const = default;
};

// One step with beta 0.9 and 0.999 and epsilon 1e-8, the values of the paper and of NeuroShard. An
// empty state is that of no step yet.
void AdamStep(std::span<const float> gradient, double learning_rate, AdamState& state,
              std::span<float> parameters);

}  // namespace neuroshard
