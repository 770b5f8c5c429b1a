#include "server/evaluate/memory_price.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace neuroshard {
namespace {

constexpr double kLeastPrice = 1e-18;  // ms a byte: a petabyte for a microsecond
constexpr double kMostPrice = 1e6;
constexpr int kHalvings = 16;  // of the interval between prices: near the best all are as good

// Behind a cache of the size that is cheapest at the price.
OffDeviceChoice CheapestCache(const TableChoices& table, const CacheCurve& caches,
                              const KernelTotals& totals, double ms_per_byte) {
  const double bytes = table.most_cache_bytes - table.least_cache_bytes;
  const double ms = std::max(0.0, totals.fused_uvm_ms - totals.fused_ms);
  const CacheStep& step =
      caches.Cheapest(ms > 0 ? ms_per_byte * bytes / ms : std::numeric_limits<double>::max());
  return {totals.fused_ms + step.share * ms, table.least_cache_bytes + step.load_factor * bytes};
}

// All tables at their cheapest under a price.
struct Relaxed {
  double bound_ms = 0;
  double device_bytes = 0;
};

Relaxed RelaxedAt(const MemoryChoices& choices, double capacity_bytes, double ms_per_byte) {
  Relaxed all = {-ms_per_byte * capacity_bytes, 0};
  for (const TableChoices& table : choices.tables) {
    double least_ms = std::numeric_limits<double>::infinity();
    double bytes = 0;
    const auto look_at = [&](const OffDeviceChoice& choice) {
      const double ms = choice.total_ms + ms_per_byte * choice.device_bytes;
      if (ms >= least_ms) return;
      least_ms = ms;
      bytes = choice.device_bytes;
    };
    // The last floor has the smallest total.
    if (!table.on_device.empty()) look_at({table.on_device.back().total_ms, table.device_bytes});
    for (const OffDeviceChoice& choice : table.off_device) look_at(choice);
    for (const KernelTotals& totals : table.cached) {
      look_at(CheapestCache(table, choices.caches, totals, ms_per_byte));
    }
    all.bound_ms += least_ms;
    all.device_bytes += bytes;
  }
  return all;
}

}  // namespace

double PriceOfMemory(const MemoryChoices& choices, double capacity_bytes) {
  const auto fits = [&](double price) {
    return RelaxedAt(choices, capacity_bytes, price).device_bytes <= capacity_bytes;
  };
  if (fits(0)) return 0;
  double low = 0;
  double high = kLeastPrice;
  while (!fits(high)) {
    low = high;
    high *= 16;
    if (high > kMostPrice) return 0;
  }
  // The bound is concave in the price, and rises as long as more is used than there is.
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return RelaxedAt(choices, capacity_bytes, low).bound_ms >
                 RelaxedAt(choices, capacity_bytes, high).bound_ms
             ? low
             : high;
}

std::vector<CostFloor> FloorsAtPrice(const TableChoices& table, const CacheCurve& caches,
                                     double ms_per_byte, int num_ranks) {
  std::vector<CostFloor> floors;
  for (const CostFloor& floor : table.on_device) {
    floors.push_back({floor.peak_ms, floor.total_ms + ms_per_byte * table.device_bytes});
  }
  const auto add = [&](double least_total_ms, const OffDeviceChoice& choice) {
    floors.push_back(
        {least_total_ms / num_ranks, choice.total_ms + ms_per_byte * choice.device_bytes});
  };
  for (const OffDeviceChoice& choice : table.off_device) add(choice.total_ms, choice);
  for (const KernelTotals& totals : table.cached) {
    // The largest cache has the smallest peak.
    add(CheapestCache(table, caches, totals, 0).total_ms,
        CheapestCache(table, caches, totals, ms_per_byte));
  }
  return LowestOf(std::move(floors), &CostFloor::peak_ms, &CostFloor::total_ms);
}

}  // namespace neuroshard
