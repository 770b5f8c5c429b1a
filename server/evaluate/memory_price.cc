#include "server/evaluate/memory_price.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace neuroshard {
namespace {

constexpr double kLeastPrice = 1e-18;  // ms a byte: a petabyte for a microsecond
constexpr double kMostPrice = 1e6;
constexpr int kHalvings = 16;  // of the interval between prices: near the best all are as good

struct CachedChoice {
  double total_ms = 0;
  double device_bytes = 0;
};

// Behind a cache of the size that is cheapest at the price.
CachedChoice CheapestCache(const TableChoices& table, const CacheCurve& caches,
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
    const auto look_at = [&](double total_ms, double device_bytes) {
      const double ms = total_ms + ms_per_byte * device_bytes;
      if (ms >= least_ms) return;
      least_ms = ms;
      bytes = device_bytes;
    };
    for (const MemoryChoice& choice : table.choices) {
      look_at(choice.least_total_ms(), choice.device_bytes);
    }
    for (const KernelTotals& totals : table.cached) {
      const CachedChoice choice = CheapestCache(table, choices.caches, totals, ms_per_byte);
      look_at(choice.total_ms, choice.device_bytes);
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
  for (const MemoryChoice& choice : table.choices) {
    for (const CostFloor& floor : choice.floors) {
      floors.push_back({floor.peak_ms, floor.total_ms + ms_per_byte * choice.device_bytes});
    }
  }
  for (const KernelTotals& totals : table.cached) {
    // The largest cache has the smallest peak.
    const double least_ms = CheapestCache(table, caches, totals, 0).total_ms;
    const CachedChoice choice = CheapestCache(table, caches, totals, ms_per_byte);
    floors.push_back({std::max(table.cached_peak_ms, least_ms / num_ranks),
                      choice.total_ms + ms_per_byte * choice.device_bytes});
  }
  return LowestOf(std::move(floors), &CostFloor::peak_ms, &CostFloor::total_ms);
}

}  // namespace neuroshard
