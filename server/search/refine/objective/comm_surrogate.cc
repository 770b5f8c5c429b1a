#include "server/search/refine/objective/comm_surrogate.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace neuroshard {
namespace {

enum Row { kEven, kAllMore, kOneMore, kOneLate, kRows };

// Of one direction: ms a unit of own load, of the largest load, and of waiting.
struct Slopes {
  double own = 0;
  double largest = 0;
  double wait = 0;
};

Slopes SlopesOf(const std::vector<float>& cost_ms, std::size_t ranks, double more_load,
                double late_ms) {
  const auto others = [&](Row row) {  // mean over ranks but the first
    double sum = 0;
    for (std::size_t r = 1; r < ranks; ++r) {
      sum += static_cast<double>(cost_ms[row * ranks + r]) - cost_ms[r];
    }
    return ranks > 1 ? sum / static_cast<double>(ranks - 1) : 0.0;
  };
  const double all = static_cast<double>(cost_ms[kAllMore * ranks]) - cost_ms[0];
  Slopes slopes;
  slopes.largest = std::max(0.0, others(kOneMore) / more_load);
  slopes.own = std::max(0.0, all / more_load - slopes.largest);
  slopes.wait = std::clamp(others(kOneLate) / late_ms, 0.0, 1.0);
  return slopes;
}

}  // namespace

CommSurrogate ProbeComm(const BoundCostModel& model, double forward_load, double backward_load) {
  const std::size_t ranks = static_cast<std::size_t>(model.num_ranks());
  const auto loads_of = [&](double load) {
    std::vector<float> loads(kRows * ranks, static_cast<float>(load));
    for (std::size_t r = 0; r < ranks; ++r) loads[kAllMore * ranks + r] *= 1.5F;
    loads[kOneMore * ranks] *= 1.5F;
    return loads;
  };
  forward_load = std::max(forward_load, 1e-6);
  backward_load = std::max(backward_load, 1e-6);
  std::vector<float> cost_ms(kRows * ranks);
  model.comm().BackwardCosts(loads_of(backward_load), cost_ms);
  const Slopes backward = SlopesOf(cost_ms, ranks, backward_load / 2, 1);
  const double late_ms = std::max(0.1, 0.5 * static_cast<double>(cost_ms[0]));
  std::vector<float> start_offsets_ms(kRows * ranks, 0.0F);
  start_offsets_ms[kOneLate * ranks] = static_cast<float>(late_ms);
  model.comm().ForwardCosts(loads_of(forward_load), start_offsets_ms, cost_ms);
  const Slopes forward = SlopesOf(cost_ms, ranks, forward_load / 2, late_ms);
  return {.backward_own = backward.own,
          .backward_largest = backward.largest,
          .forward_own = forward.own,
          .forward_largest = forward.largest,
          .forward_wait = forward.wait};
}

}  // namespace neuroshard
