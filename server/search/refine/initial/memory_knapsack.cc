#include "server/search/refine/initial/memory_knapsack.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace neuroshard {
namespace {

// How the price of a byte of a memory is looked for: the prices that are tried besides 0, and the
// width of the interval, as a share of its upper end, at which it is narrow enough.
struct PriceSearch {
  int rounds;
  double width;
};
constexpr PriceSearch SearchOf(MemoryTier tier) {
  return tier == MemoryTier::kHost ? PriceSearch{23, 0.01} : PriceSearch{12, 0};
}

// A step of a table to a holding with more device memory.
struct Promotion {
  double gain_a_byte = 0;
  std::size_t table = 0;
  int position = 0;
  const TableHolding* from = nullptr;
  const TableHolding* to = nullptr;

  bool operator<(const Promotion& other) const {
    return gain_a_byte != other.gain_a_byte ? gain_a_byte > other.gain_a_byte : table < other.table;
  }
};

// A position a table, what they take together, and whether the memories below device memory whose
// prices were looked for have room for them all.
struct Filling {
  std::vector<int> chosen;
  ByTier<double> bytes = {};
  bool fits = true;
};

class Knapsack {
 public:
  Knapsack(const std::vector<std::vector<TableHolding>>& tables, const ByTier<double>& room)
      : tables_(tables), room_(room) {}

  // With prices of the bytes of this memory and the faster ones as they have to be, of slower ones
  // as they are.
  Filling Fill(MemoryTier tier) {
    if (tier == MemoryTier::kDevice) return FillDevices();
    const MemoryTier faster = static_cast<MemoryTier>(static_cast<int>(tier) - 1);
    const auto fill_at = [&](double price) {
      price_[tier] = price;
      Filling filling = Fill(faster);
      filling.fits = filling.fits && filling.bytes[tier] <= room_[tier];
      return filling;
    };
    Filling best = fill_at(0);
    if (best.bytes[tier] <= room_[tier]) return best;
    double scale = 0;  // a price at which any table rather leaves this memory
    for (const std::vector<TableHolding>& holdings : tables_) {
      for (const TableHolding& h : holdings) {
        scale = std::max(scale,
                         h.cost_ms / static_cast<double>(std::max<std::int64_t>(1, h.bytes[tier])));
      }
    }
    double low = 0, high = 0;
    for (int round = 0; round < SearchOf(tier).rounds; ++round) {
      const double price = high == 0 ? scale : (low + high) / 2;
      Filling filling = fill_at(price);
      if (filling.fits) {
        best = std::move(filling);
        high = price;
        if (high - low < SearchOf(tier).width * high) break;
      } else if (high > 0) {
        low = price;
      } else {
        if (round > 0) break;  // no price is enough
        low = price;
        scale *= 1e3;
      }
    }
    return best;
  }

 private:
  Filling FillDevices();
  // Positions on the lower convex hull of (device bytes, cost with the prices of bytes), from the
  // fewest bytes on.
  void FindHull(const std::vector<TableHolding>& holdings);

  const std::vector<std::vector<TableHolding>>& tables_;
  const ByTier<double> room_;
  ByTier<double> price_ = {};
  // Scratch of FillDevices, kept for its memory.
  std::vector<std::pair<int, double>> hull_;
  std::vector<Promotion> promotions_;
};

void Knapsack::FindHull(const std::vector<TableHolding>& holdings) {
  hull_.clear();
  const auto bytes = [&](const std::pair<int, double>& point) {
    return holdings[static_cast<std::size_t>(point.first)].bytes[MemoryTier::kDevice];
  };
  const auto ratio = [&](const auto& a, const auto& b) {
    return (a.second - b.second) /
           static_cast<double>(std::max<std::int64_t>(1, bytes(b) - bytes(a)));
  };
  for (std::size_t i = 0; i < holdings.size(); ++i) {
    std::pair<int, double> point = {static_cast<int>(i), holdings[i].cost_ms};
    for (const auto& [tier, name] : kWords<MemoryTier>) {
      point.second += price_[tier] * static_cast<double>(holdings[i].bytes[tier]);
    }
    if (!hull_.empty() && point.second >= hull_.back().second) continue;
    if (!hull_.empty() && bytes(point) == bytes(hull_.back())) hull_.pop_back();
    while (hull_.size() > 1 &&
           ratio(hull_[hull_.size() - 2], hull_.back()) <= ratio(hull_.back(), point)) {
      hull_.pop_back();
    }
    hull_.push_back(point);
  }
}

Filling Knapsack::FillDevices() {
  Filling filling{std::vector<int>(tables_.size(), -1)};
  promotions_.clear();
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (tables_[t].empty()) continue;
    FindHull(tables_[t]);
    const auto holding = [&](std::size_t i) {
      return &tables_[t][static_cast<std::size_t>(hull_[i].first)];
    };
    filling.chosen[t] = hull_.front().first;
    for (const auto& [tier, name] : kWords<MemoryTier>) {
      filling.bytes[tier] += static_cast<double>(holding(0)->bytes[tier]);
    }
    for (std::size_t i = 1; i < hull_.size(); ++i) {
      const std::int64_t more =
          holding(i)->bytes[MemoryTier::kDevice] - holding(i - 1)->bytes[MemoryTier::kDevice];
      promotions_.push_back({(hull_[i - 1].second - hull_[i].second) /
                                 static_cast<double>(std::max<std::int64_t>(1, more)),
                             t, hull_[i].first, holding(i - 1), holding(i)});
    }
  }
  std::stable_sort(promotions_.begin(), promotions_.end());
  std::vector<bool> full(tables_.size());
  for (const Promotion& step : promotions_) {
    if (full[step.table]) continue;
    const auto more = [&](MemoryTier tier) {
      return static_cast<double>(step.to->bytes[tier] - step.from->bytes[tier]);
    };
    if (filling.bytes[MemoryTier::kDevice] + more(MemoryTier::kDevice) >
        room_[MemoryTier::kDevice]) {
      full[step.table] = true;
      continue;
    }
    for (const auto& [tier, name] : kWords<MemoryTier>) filling.bytes[tier] += more(tier);
    filling.chosen[step.table] = step.position;
  }
  return filling;
}

}  // namespace

std::vector<int> FillMemories(const std::vector<std::vector<TableHolding>>& tables,
                              const ByTier<double>& room, double fill) {
  ByTier<double> filled = room;
  filled[MemoryTier::kDevice] *= fill;
  return Knapsack(tables, filled).Fill(kWords<MemoryTier>.back().value).chosen;
}

}  // namespace neuroshard
