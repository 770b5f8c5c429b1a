#include "server/evaluate/memory_price.h"

#include <algorithm>
#include <utility>

namespace neuroshard {
namespace {

constexpr double kLeastPrice = 1e-18;  // ms a byte: a petabyte for a microsecond
constexpr double kMostPrice = 1e6;
constexpr int kHalvings = 24;  // of the interval between prices

// All tables at their cheapest under a price.
struct Relaxed {
  double bound_ms = 0;
  double device_bytes = 0;
};

Relaxed RelaxedAt(std::span<const TableChoices> tables, double capacity_bytes, double ms_per_byte) {
  Relaxed all = {-ms_per_byte * capacity_bytes, 0};
  for (const TableChoices& table : tables) {
    bool found = false;
    double least_ms = 0;
    double bytes = 0;
    const auto look_at = [&](double total_ms, double device_bytes) {
      const double ms = total_ms + ms_per_byte * device_bytes;
      if (found && ms >= least_ms) return;
      found = true;
      least_ms = ms;
      bytes = device_bytes;
    };
    // The last floor has the smallest total.
    if (!table.on_device.empty()) look_at(table.on_device.back().total_ms, table.device_bytes);
    for (const OffDeviceChoice& choice : table.off_device) {
      look_at(choice.total_ms, choice.device_bytes);
    }
    all.bound_ms += least_ms;
    all.device_bytes += bytes;
  }
  return all;
}

}  // namespace

double PriceOfMemory(std::span<const TableChoices> tables, double capacity_bytes) {
  const auto fits = [&](double price) {
    return RelaxedAt(tables, capacity_bytes, price).device_bytes <= capacity_bytes;
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
  return RelaxedAt(tables, capacity_bytes, low).bound_ms >
                 RelaxedAt(tables, capacity_bytes, high).bound_ms
             ? low
             : high;
}

std::vector<CostFloor> FloorsAtPrice(const TableChoices& table, double ms_per_byte, int num_ranks) {
  std::vector<CostFloor> floors;
  for (const CostFloor& floor : table.on_device) {
    floors.push_back({floor.peak_ms, floor.total_ms + ms_per_byte * table.device_bytes});
  }
  for (const OffDeviceChoice& choice : table.off_device) {
    floors.push_back(
        {choice.total_ms / num_ranks, choice.total_ms + ms_per_byte * choice.device_bytes});
  }
  return LowestOf(std::move(floors));
}

}  // namespace neuroshard
