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

// Shares of device memory that dynamic programming tells apart, the most tables, and holdings of all
// tables, that it is for, and the share of their time that it has to be able to save: of many tables
// it saves less, and rounds their bytes to more than there is room for.
constexpr int kShares = 1024;
constexpr std::size_t kMaxHoldings = 2048;
constexpr double kWorthwhileGain = 2e-3;

// A position a table, what they take together, the prices of bytes that they were found at, and
// whether the memories below device memory whose prices were looked for have room for them all.
struct Filling {
  std::vector<int> chosen;
  ByTier<double> bytes = {};
  ByTier<double> price = {};
  bool fits = true;
  // What the linear relaxation saves beyond this at these prices.
  double relaxed_gain_ms = 0;
};

class Knapsack {
 public:
  Knapsack(const std::vector<std::vector<TableHolding>>& tables, const ByTier<double>& room,
           absl::FunctionRef<bool()> should_stop)
      : tables_(tables), room_(room), should_stop_(should_stop) {}

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
    for (int round = 0; round < SearchOf(tier).rounds && !should_stop_(); ++round) {
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

  // Returns what takes least time at the prices of `filling`, by dynamic programming over kShares
  // shares of device memory, to which bytes are rounded, where its time without the prices is less
  // and there is room for it; else the choice of `filling`. The greedy choice leaves memory free that
  // its next step does not fit into: much, where tables are few and large.
  std::vector<int> Improved(const Filling& filling);

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

  const TableHolding& Holding(std::size_t table, int position) const {
    return At(tables_[table], position);
  }
  double TimeOf(const std::vector<int>& chosen) const {
    double ms = 0;
    for (std::size_t t = 0; t < chosen.size(); ++t) {
      if (chosen[t] >= 0) ms += Holding(t, chosen[t]).cost_ms;
    }
    return ms;
  }
  // At most what a choice may save beyond `filling` within all memories.
  double MostGain(const Filling& filling) const {
    double gain_ms = filling.relaxed_gain_ms;
    for (const auto& [tier, name] : kWords<MemoryTier>) {
      gain_ms += filling.price[tier] * std::max(0.0, room_[tier] - filling.bytes[tier]);
    }
    return gain_ms;
  }

  const std::vector<std::vector<TableHolding>>& tables_;
  const ByTier<double> room_;
  const absl::FunctionRef<bool()> should_stop_;
  ByTier<double> price_ = {};
  // Scratch of FillDevices, kept for its memory.
  std::vector<std::pair<int, double>> hull_;
  std::vector<Promotion> promotions_;
};

void Knapsack::FindHull(const std::vector<TableHolding>& holdings) {
  hull_.clear();
  const auto bytes = [&](const std::pair<int, double>& point) {
    return At(holdings, point.first).bytes[MemoryTier::kDevice];
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
    const auto holding = [&](std::size_t i) { return &At(tables_[t], hull_[i].first); };
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
  bool is_full = false;  // any of them
  for (const Promotion& step : promotions_) {
    if (full[step.table]) continue;
    const auto more = [&](MemoryTier tier) {
      return static_cast<double>(step.to->bytes[tier] - step.from->bytes[tier]);
    };
    const double left = room_[MemoryTier::kDevice] - filling.bytes[MemoryTier::kDevice];
    if (more(MemoryTier::kDevice) > left) {
      // The first that has no room is the one that the relaxation takes a part of.
      if (!is_full) filling.relaxed_gain_ms = step.gain_a_byte * std::max(0.0, left);
      full[step.table] = is_full = true;
      continue;
    }
    if (is_full) filling.relaxed_gain_ms -= step.gain_a_byte * more(MemoryTier::kDevice);
    for (const auto& [tier, name] : kWords<MemoryTier>) filling.bytes[tier] += more(tier);
    filling.chosen[step.table] = step.position;
  }
  return filling;
}

std::vector<int> Knapsack::Improved(const Filling& filling) {
  std::size_t count = 0;
  for (const std::vector<TableHolding>& holdings : tables_) count += holdings.size();
  const double room = room_[MemoryTier::kDevice];
  const double filled_ms = TimeOf(filling.chosen);
  if (std::max(count, tables_.size()) > kMaxHoldings || room <= 0 || should_stop_() ||
      MostGain(filling) <= kWorthwhileGain * filled_ms) {
    return filling.chosen;
  }
  price_ = filling.price;
  constexpr std::size_t kWidth = kShares + 1;
  // By shares: the least time of the tables so far, and of each table the holding that it is with.
  std::vector<double> least(kWidth, 0), next(kWidth);
  std::vector<int> chosen(tables_.size() * kWidth, -1);
  struct Step {
    int holding;
    std::size_t shares;
    double ms;
  };
  std::vector<Step> steps;
  const auto shares_of = [&](const TableHolding& holding) {
    const double bytes = static_cast<double>(holding.bytes[MemoryTier::kDevice]);
    return static_cast<std::size_t>(std::min(kShares + 1.0, std::round(kShares * bytes / room)));
  };
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (tables_[t].empty()) continue;
    std::ranges::fill(next, std::numeric_limits<double>::infinity());
    int* const of_table = chosen.data() + t * kWidth;
    // Keeps holdings that take less time than all of fewer shares.
    steps.clear();
    for (std::size_t h = 0; h < tables_[t].size(); ++h) {
      const Step step = {static_cast<int>(h), shares_of(tables_[t][h]), PricedMs(tables_[t][h])};
      if (!steps.empty() && step.ms >= steps.back().ms) continue;
      if (!steps.empty() && step.shares == steps.back().shares) steps.pop_back();
      steps.push_back(step);
    }
    for (const auto& [holding, shares, ms] : steps) {
      for (std::size_t s = shares; s < kWidth; ++s) {
        if (least[s - shares] + ms >= next[s]) continue;
        next[s] = least[s - shares] + ms;
        of_table[s] = holding;
      }
    }
    std::swap(least, next);
  }
  if (!std::isfinite(least.back())) return filling.chosen;
  std::vector<int> found(tables_.size(), -1);
  ByTier<double> bytes = {};
  std::size_t left = kShares;
  for (std::size_t t = tables_.size(); t-- > 0;) {
    const int h = chosen[t * kWidth + left];
    if (h < 0) continue;
    found[t] = h;
    left -= shares_of(Holding(t, h));
    for (const auto& [tier, name] : kWords<MemoryTier>) {
      bytes[tier] += static_cast<double>(Holding(t, h).bytes[tier]);
    }
  }
  // The greedy choice may be beyond its room, where nothing less is.
  const bool has_room = std::ranges::all_of(kWords<MemoryTier>, [&](const auto& word) {
    return bytes[word.value] <= std::max(room_[word.value], filling.bytes[word.value]);
  });
  return has_room && TimeOf(found) < filled_ms ? found : filling.chosen;
}

}  // namespace

std::vector<int> FillMemories(const std::vector<std::vector<TableHolding>>& tables,
                              const ByTier<double>& room, double fill, KnapsackMethod method,
                              absl::FunctionRef<bool()> should_stop) {
  ByTier<double> filled = room;
  filled[MemoryTier::kDevice] *= fill;
  Knapsack knapsack(tables, filled, should_stop);
  const Filling filling = knapsack.Fill(kWords<MemoryTier>.back().value);
  return method == KnapsackMethod::kGreedy ? filling.chosen : knapsack.Improved(filling);
}

}  // namespace neuroshard
