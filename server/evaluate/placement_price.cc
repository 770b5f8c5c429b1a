#include "server/evaluate/placement_price.h"

#include <algorithm>
#include <cstddef>

namespace neuroshard {

void PricePlacements(const BoundCostModel& model, std::span<const float> compute_ms,
                     std::span<const float> forward_loads, std::span<const float> backward_loads,
                     PlacementPrices& prices, std::span<const ShardKinds> kinds) {
  const std::size_t ranks = static_cast<std::size_t>(model.num_ranks());
  const std::size_t cells = compute_ms.size();
  prices.backward_comm_ms.resize(cells);
  prices.start_offset_ms.resize(cells);
  prices.forward_comm_ms.resize(cells);
  prices.cost_ms.resize(cells / ranks);
  if (cells == 0) return;

  const auto add_setup = [&](float CommSetup::*stage, std::vector<float>& cost_ms) {
    for (std::size_t p = 0; p < kinds.size(); ++p) {
      const float setup_ms = model.comm().SetupOf(kinds[p]).*stage;
      for (std::size_t i = p * ranks; i < (p + 1) * ranks; ++i) {
        cost_ms[i] = std::max(0.0F, cost_ms[i] + setup_ms);
      }
    }
  };
  model.comm().BackwardCosts(backward_loads, prices.backward_comm_ms);
  add_setup(&CommSetup::backward_ms, prices.backward_comm_ms);
  for (std::size_t begin = 0; begin < cells; begin += ranks) {
    float first = compute_ms[begin] + prices.backward_comm_ms[begin];
    for (std::size_t i = begin; i < begin + ranks; ++i) {
      prices.start_offset_ms[i] = compute_ms[i] + prices.backward_comm_ms[i];
      first = std::min(first, prices.start_offset_ms[i]);
    }
    for (std::size_t i = begin; i < begin + ranks; ++i) prices.start_offset_ms[i] -= first;
  }
  model.comm().ForwardCosts(forward_loads, prices.start_offset_ms, prices.forward_comm_ms);
  add_setup(&CommSetup::forward_ms, prices.forward_comm_ms);
  for (std::size_t begin = 0; begin < cells; begin += ranks) {
    double cost_ms = 0;
    for (std::size_t i = begin; i < begin + ranks; ++i) {
      cost_ms = std::max(cost_ms, static_cast<double>(compute_ms[i]) + prices.backward_comm_ms[i] +
                                      prices.forward_comm_ms[i]);
    }
    prices.cost_ms[begin / ranks] = cost_ms;
  }
}

}  // namespace neuroshard
