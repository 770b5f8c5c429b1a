#include "server/search/refine/initial/memory_knapsack.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
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

// Shares of device memory that dynamic programming tells apart, and the holdings of all tables up to
// which it takes no longer than the constructions that its choice is for.
constexpr int kShares = 1024;
constexpr std::size_t kMostHoldings = 2048;

// A position a table, what they take together, the prices of bytes that they were found at, and
// whether the memories below device memory whose prices were looked for have room for them all.
struct Filling {
  std::vector<int> chosen;
  ByTier<double> bytes = {};
  ByTier<double> price = {};
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

  // What takes least time at the prices of `filling`, by dynamic programming over kShares shares of
  // device memory, to which bytes are rounded, where that is less and there is room for it. The
  // greedy choice leaves memory free that its next step does not fit into: much, where tables are
  // few and large.
  void Improve(Filling& filling);

 private:
  Filling FillDevices();
  double PricedMs(const TableHolding& holding) const {
    double ms = holding.cost_ms;
    for (const auto& [tier, name] : kWords<MemoryTier>) {
      ms += price_[tier] * static_cast<double>(holding.bytes[tier]);
    }
    return ms;
  }
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
    const std::pair<int, double> point = {static_cast<int>(i), PricedMs(holdings[i])};
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
  Filling filling{.chosen = std::vector<int>(tables_.size(), -1), .price = price_};
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

void Knapsack::Improve(Filling& filling) {
  std::size_t count = 0;
  for (const std::vector<TableHolding>& holdings : tables_) count += holdings.size();
  const double room = room_[MemoryTier::kDevice];
  if (count > kMostHoldings || room <= 0) return;
  price_ = filling.price;
  constexpr std::size_t kWidth = kShares + 1;
  // By shares: the least time of the tables so far, and of each table the holding that it is with.
  std::vector<double> least(kWidth, 0), next(kWidth);
  std::vector<int> chosen(tables_.size() * kWidth, -1);
  const auto shares_of = [&](const TableHolding& holding) {
    const double bytes = static_cast<double>(holding.bytes[MemoryTier::kDevice]);
    return static_cast<std::size_t>(std::min(kShares + 1.0, std::round(kShares * bytes / room)));
  };
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (tables_[t].empty()) continue;
    std::fill(next.begin(), next.end(), std::numeric_limits<double>::infinity());
    int* const of_table = chosen.data() + t * kWidth;
    double cheapest_ms = std::numeric_limits<double>::infinity();
    for (std::size_t h = 0; h < tables_[t].size(); ++h) {
      const double ms = PricedMs(tables_[t][h]);
      if (ms >= cheapest_ms) continue;  // than with less memory
      cheapest_ms = ms;
      const std::size_t shares = shares_of(tables_[t][h]);
      for (std::size_t s = shares; s < kWidth; ++s) {
        if (least[s - shares] + ms >= next[s]) continue;
        next[s] = least[s - shares] + ms;
        of_table[s] = static_cast<int>(h);
      }
    }
    std::swap(least, next);
  }
  if (!std::isfinite(least.back())) return;
  Filling found{.chosen = std::vector<int>(tables_.size(), -1), .price = price_};
  double gain_ms = 0;
  std::size_t left = kShares;
  for (std::size_t t = tables_.size(); t-- > 0;) {
    const int h = chosen[t * kWidth + left];
    if (h < 0) continue;
    const TableHolding& holding = tables_[t][static_cast<std::size_t>(h)];
    found.chosen[t] = h;
    left -= shares_of(holding);
    gain_ms +=
        PricedMs(tables_[t][static_cast<std::size_t>(filling.chosen[t])]) - PricedMs(holding);
    for (const auto& [tier, name] : kWords<MemoryTier>) {
      found.bytes[tier] += static_cast<double>(holding.bytes[tier]);
    }
  }
  const auto has_room = [&](const auto& word) {
    return found.bytes[word.value] <= std::max(room_[word.value], filling.bytes[word.value]);
  };
  if (gain_ms > 0 && std::all_of(kWords<MemoryTier>.begin(), kWords<MemoryTier>.end(), has_room)) {
    filling = std::move(found);
  }
}

}  // namespace

std::vector<int> FillMemories(const std::vector<std::vector<TableHolding>>& tables,
                              const ByTier<double>& room, double fill, bool greedily) {
  ByTier<double> filled = room;
  filled[MemoryTier::kDevice] *= fill;
  Knapsack knapsack(tables, filled);
  Filling filling = knapsack.Fill(kWords<MemoryTier>.back().value);
  if (!greedily) knapsack.Improve(filling);
  return filling.chosen;
}

}  // namespace neuroshard
