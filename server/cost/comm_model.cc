#include "server/cost/comm_model.h"

#include <algorithm>
#include <cassert>

namespace neuroshard {

void BackwardCostsOf(const CommForConditions* comm, [[maybe_unused]] int num_ranks,
                     std::span<const float> loads, std::span<float> cost_ms) {
  assert((comm == nullptr) == (num_ranks == 1));
  if (comm != nullptr) return comm->BackwardCosts(loads, cost_ms);
  std::fill(cost_ms.begin(), cost_ms.end(), 0.0F);
}

void ForwardCostsOf(const CommForConditions* comm, [[maybe_unused]] int num_ranks,
                    std::span<const float> loads, std::span<const float> start_offsets_ms,
                    std::span<float> cost_ms) {
  assert((comm == nullptr) == (num_ranks == 1));
  if (comm != nullptr) return comm->ForwardCosts(loads, start_offsets_ms, cost_ms);
  std::fill(cost_ms.begin(), cost_ms.end(), 0.0F);
}

}  // namespace neuroshard
