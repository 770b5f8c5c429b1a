#include "server/pretrain/report/measurement_drift.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

#include "common/base/positions.h"

namespace neuroshard {
namespace {

constexpr std::size_t kBlock = 100;

}  // namespace

MeasurementDrift DriftOf(std::span<const double> predicted_ms, std::span<const double> measured_ms,
                         std::span<const std::int64_t> measured_at_unix_ms) {
  assert(predicted_ms.size() == measured_ms.size());
  assert(predicted_ms.size() == measured_at_unix_ms.size());
  MeasurementDrift drift;
  drift.slowness.assign(measured_ms.size(), 1);
  std::vector<std::size_t> order = Positions(measured_ms.size());
  std::erase_if(order, [&](std::size_t i) { return !(predicted_ms[i] > 0 && measured_ms[i] > 0); });
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return measured_at_unix_ms[a] < measured_at_unix_ms[b];
  });
  const std::size_t blocks = order.size() / kBlock;
  if (blocks < 2) return drift;
  if (measured_at_unix_ms[order.front()] == measured_at_unix_ms[order.back()]) return drift;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t begin = order.size() * b / blocks;
    const std::size_t end = order.size() * (b + 1) / blocks;
    std::vector<double> ratios;
    for (std::size_t i = begin; i < end; ++i) {
      ratios.push_back(measured_ms[order[i]] / predicted_ms[order[i]]);
    }
    const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
    std::nth_element(ratios.begin(), middle, ratios.end());
    for (std::size_t i = begin; i < end; ++i) drift.slowness[order[i]] = *middle;
    drift.least = b == 0 ? *middle : std::min(drift.least, *middle);
    drift.greatest = b == 0 ? *middle : std::max(drift.greatest, *middle);
  }
  return drift;
}

}  // namespace neuroshard
