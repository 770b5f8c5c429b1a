#include "server/search/refine/initial/memory_knapsack.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace neuroshard {
namespace {

// Prices of a byte of host memory that are tried, and of SSDs.
constexpr int kHostPriceRounds = 24;
constexpr int kSsdPriceRounds = 12;

// A step of a table to a holding with more device memory.
struct Promotion {
  double gain_a_byte = 0;
  std::size_t table = 0;
  int position = 0;
  std::int64_t device_bytes = 0;  // that it adds
  std::int64_t host_bytes = 0;    // likewise
  std::int64_t ssd_bytes = 0;

  bool operator<(const Promotion& other) const {
    return gain_a_byte != other.gain_a_byte ? gain_a_byte > other.gain_a_byte : table < other.table;
  }
};

// Positions on the lower convex hull of (device bytes, cost with a price on bytes of hosts), from
// the fewest bytes on.
void FindHull(const std::vector<TableHolding>& holdings, double host_price, double ssd_price,
              std::vector<std::pair<int, double>>& hull) {
  hull.clear();
  const auto bytes = [&](const std::pair<int, double>& point) {
    return holdings[static_cast<std::size_t>(point.first)].device_bytes;
  };
  const auto ratio = [&](const auto& a, const auto& b) {
    return (a.second - b.second) /
           static_cast<double>(std::max<std::int64_t>(1, bytes(b) - bytes(a)));
  };
  for (std::size_t i = 0; i < holdings.size(); ++i) {
    const std::pair<int, double> point = {
        static_cast<int>(i), holdings[i].cost_ms +
                                 host_price * static_cast<double>(holdings[i].host_bytes) +
                                 ssd_price * static_cast<double>(holdings[i].ssd_bytes)};
    if (!hull.empty() && point.second >= hull.back().second) continue;
    if (!hull.empty() && bytes(point) == bytes(hull.back())) hull.pop_back();
    while (hull.size() > 1 &&
           ratio(hull[hull.size() - 2], hull.back()) <= ratio(hull.back(), point)) {
      hull.pop_back();
    }
    hull.push_back(point);
  }
}

// A position a table, and whether hosts have room for them all.
struct Filling {
  std::vector<int> chosen;
  bool fits_hosts = true;
  double ssd_bytes = 0;
};

// At a price of a byte of SSD.
Filling FillAt(const std::vector<std::vector<TableHolding>>& tables, double device_room,
               double host_room, double ssd_price) {
  // A price at which any table rather leaves host memory.
  double scale = 0;
  for (const auto& holdings : tables) {
    for (const TableHolding& h : holdings) {
      scale =
          std::max(scale, h.cost_ms / static_cast<double>(std::max<std::int64_t>(1, h.host_bytes)));
    }
  }
  std::vector<int> chosen(tables.size(), -1);
  Filling without_price;
  Filling fitting;  // at the last price at which hosts had room
  std::vector<std::pair<int, double>> hull;
  std::vector<Promotion> promotions;
  double low = 0, high = 0;
  for (int round = 0; round < kHostPriceRounds; ++round) {
    const double price = round == 0 ? 0 : high == 0 ? scale : (low + high) / 2;
    double device_bytes = 0, host_bytes = 0, ssd_bytes = 0;
    promotions.clear();
    for (std::size_t t = 0; t < tables.size(); ++t) {
      if (tables[t].empty()) continue;
      FindHull(tables[t], price, ssd_price, hull);
      const auto holding = [&](std::size_t i) -> const TableHolding& {
        return tables[t][static_cast<std::size_t>(hull[i].first)];
      };
      chosen[t] = hull.front().first;
      device_bytes += static_cast<double>(holding(0).device_bytes);
      host_bytes += static_cast<double>(holding(0).host_bytes);
      ssd_bytes += static_cast<double>(holding(0).ssd_bytes);
      for (std::size_t i = 1; i < hull.size(); ++i) {
        const std::int64_t more = holding(i).device_bytes - holding(i - 1).device_bytes;
        promotions.push_back({(hull[i - 1].second - hull[i].second) /
                                  static_cast<double>(std::max<std::int64_t>(1, more)),
                              t, hull[i].first, more,
                              holding(i).host_bytes - holding(i - 1).host_bytes,
                              holding(i).ssd_bytes - holding(i - 1).ssd_bytes});
      }
    }
    std::stable_sort(promotions.begin(), promotions.end());
    std::vector<bool> full(tables.size());
    for (const Promotion& step : promotions) {
      if (full[step.table]) continue;
      if (device_bytes + static_cast<double>(step.device_bytes) > device_room) {
        full[step.table] = true;
        continue;
      }
      device_bytes += static_cast<double>(step.device_bytes);
      host_bytes += static_cast<double>(step.host_bytes);
      ssd_bytes += static_cast<double>(step.ssd_bytes);
      chosen[step.table] = step.position;
    }
    const bool fits = host_bytes <= host_room;
    if (fits) fitting = {chosen, true, ssd_bytes};
    if (round == 0) {
      if (fits) break;
      without_price = {chosen, false, ssd_bytes};
      continue;
    }
    if (fits) {
      high = price;
    } else if (high == 0) {
      if (round > 1) break;  // no price is enough
      low = price;
      scale *= 1e3;
    } else {
      low = price;
    }
    if (fits && high - low < 0.01 * high) break;
  }
  return fitting.chosen.empty() ? without_price : fitting;
}

}  // namespace

std::vector<int> FillMemories(const std::vector<std::vector<TableHolding>>& tables,
                              double device_room, double host_room, double ssd_room) {
  Filling filling = FillAt(tables, device_room, host_room, 0);
  if (filling.ssd_bytes <= ssd_room) return std::move(filling.chosen);
  double scale = 0;  // a price at which any table rather leaves the SSDs
  for (const auto& holdings : tables) {
    for (const TableHolding& h : holdings) {
      scale =
          std::max(scale, h.cost_ms / static_cast<double>(std::max<std::int64_t>(1, h.ssd_bytes)));
    }
  }
  double low = 0, high = 0;
  for (int round = 0; round < kSsdPriceRounds; ++round) {
    const double price = high == 0 ? scale : (low + high) / 2;
    Filling at_price = FillAt(tables, device_room, host_room, price);
    if (at_price.fits_hosts && at_price.ssd_bytes <= ssd_room) {
      filling = std::move(at_price);
      high = price;
    } else if (high > 0) {
      low = price;
    } else {
      if (round > 0) break;  // no price is enough
      low = price;
      scale *= 1e3;
    }
  }
  return std::move(filling.chosen);
}

}  // namespace neuroshard
