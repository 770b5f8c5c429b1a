#include "server/search/refine/initial/construction.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "common/base/positions.h"
#include "common/domain/memory_pools.h"
#include "common/domain/memory_use.h"
#include "server/search/refine/solution/lowest_place.h"

namespace neuroshard {
namespace {

// Tables whose shards are predicted in one batch.
constexpr std::size_t kPricedTogether = 32;

// Each memory of `largest` becomes at least that of `bytes`.
void Enlarge(TierBytes& largest, const TierBytes& bytes) {
  for (const auto& [tier, name] : kWords<MemoryTier>) {
    largest[tier] = std::max(largest[tier], bytes[tier]);
  }
}

}  // namespace

Construction::Construction(Workbench& bench)
    : MoveTools(bench),
      surrogate_(bench.pricer.surrogate()),
      numbers_(Positions<int>(static_cast<std::size_t>(rules_.num_ranks()))) {
  const MemoryPools pools(context_.request());
  for (int r = 0; r < rules_.num_ranks(); ++r) {
    room_bytes_[MemoryTier::kDevice] +=
        static_cast<double>(std::max<std::int64_t>(0, pools.LeftOnDevice(r)));
    Enlarge(largest_room_, pools.Left(r));
  }
  for (const SharedMemory& memory : kSharedMemories) {
    for (const std::int64_t bytes : context_.request().topology.*memory.of_hosts) {
      room_bytes_[memory.tier] += static_cast<double>(bytes);
    }
  }
}

bool Construction::IsTooLarge(const TierBytes& bytes) const {
  return std::any_of(kWords<MemoryTier>.begin(), kWords<MemoryTier>.end(), [&](const auto& word) {
    return bytes[word.value] > largest_room_[word.value];
  });
}

double Construction::MemoryMs(const TierBytes& bytes) const {
  double ms = 0;
  for (const auto& [tier, name] : kWords<MemoryTier>) {
    ms += ms_a_byte_[tier] * static_cast<double>(bytes[tier]);
  }
  return ms;
}

bool Construction::IsLarge(int table) {
  const std::int64_t dim = At(context_.request().tables, table).embedding_dim;
  const int whole = shard_table_.Shards(table, ShardingType::kTableWise, dim, 1).full;
  return 2 * shard_table_.bytes(whole) > largest_room_[MemoryTier::kDevice];
}

template <typename Visit>
void Construction::ForEachWidth(int table, const TableLayout& layout, const Visit& visit) {
  layouts_.Widths(table, layout.blocks, widths_);
  std::ranges::sort(widths_);
  for (auto width = widths_.begin(); width != widths_.end();) {
    const auto next = std::upper_bound(width, widths_.end(), *width);
    visit(*width, static_cast<int>(next - width));
    width = next;
  }
}

bool Construction::IsTooLarge(int table, const TableLayout& layout) {
  bool is_too_large = false;
  ForEachWidth(table, layout, [&](std::int64_t cols, int /*blocks*/) {
    const int shard = layouts_.Shards(shard_table_, table, layout, cols).full;
    is_too_large = is_too_large || IsTooLarge(shard_table_.tier_bytes(shard));
  });
  return is_too_large;
}

double Construction::PriceOf(int shard) const {
  const CommLoad& load = shard_table_.load(shard);
  return static_cast<double>(shard_table_.shard_cost_ms(shard)) +
         static_cast<double>(load.forward) * (surrogate_.forward_own + surrogate_.forward_largest) +
         static_cast<double>(load.backward) *
             (surrogate_.backward_own + surrogate_.backward_largest);
}

double Construction::PriceOn(int rank, int shard) const {
  const double scale = context_.model().compute_scale(static_cast<std::size_t>(rank));
  const double mean_ms = static_cast<double>(shard_table_.shard_cost_ms(shard));
  const double here_ms = static_cast<double>(shard_table_.shard_cost_ms(shard, rank));
  return PriceOf(shard) + (scale - 1) * here_ms + (here_ms - mean_ms);
}

PricedLayouts Construction::Price(std::size_t most, const Residencies& residencies) {
  const std::size_t tables = context_.request().tables.size();
  std::vector<std::vector<TableLayout>> layouts(tables);
  std::vector<std::vector<PricedLayout>> priced(tables);
  std::size_t known = 0;
  for (std::size_t t = 0; t < tables; ++t) {
    for (; known <= t || (known % kPricedTogether != 0 && known < tables); ++known) {
      const int table = static_cast<int>(known);
      const auto add = [&](std::vector<TableLayout> of) {
        std::size_t count = std::min(most, of.size());
        if (most == 1 && rules_.has_off_device() && !of.empty()) {
          const auto first = std::ranges::find_if(
              of, [&](const TableLayout& layout) { return !IsTooLarge(table, layout); });
          if (first != of.end()) std::iter_swap(of.begin(), first);
          if (of.front().residency == 0 && IsLarge(table)) count = of.size();
        }
        layouts[known].insert(layouts[known].end(), of.begin(),
                              of.begin() + static_cast<std::ptrdiff_t>(count));
      };
      const std::vector<TableLayout> anywhere = layouts_.Of(table);
      for (const int residency : residencies[known]) {
        add(layouts_.In(table, residency, anywhere));
      }
      if (std::ranges::count(residencies[known], 0) == 0) {
        std::vector<TableLayout> copies = layouts_.In(table, 0, anywhere);
        std::erase_if(copies, [](const TableLayout& layout) {
          return layout.type != ShardingType::kDataParallel;
        });
        add(copies);
      }
      for (const TableLayout& layout : layouts[known]) {
        ForEachWidth(table, layout, [&](std::int64_t cols, int /*blocks*/) {
          layouts_.Shards(shard_table_, table, layout, cols);
        });
      }
    }
    shard_table_.PredictNew();
    if (context_.ShouldStop()) return {};
    const int table = static_cast<int>(t);
    priced[t].reserve(layouts[t].size());
    for (const TableLayout& layout : layouts[t]) {
      PricedLayout p{.layout = layout};
      const auto count_shards = [&](int shard, double price_ms, int count) {
        const TierBytes& bytes = shard_table_.tier_bytes(shard);
        p.price_ms += count * price_ms;
        p.peak_ms = std::max(p.peak_ms, price_ms);
        for (const auto& [tier, name] : kWords<MemoryTier>) {
          AddBytes(p.bytes[tier], bytes[tier], count);
        }
        Enlarge(p.peak_bytes, bytes);
      };
      ForEachWidth(table, layout, [&](std::int64_t cols, int blocks) {
        const UnitShards shards = layouts_.Shards(shard_table_, table, layout, cols);
        if (shards.ragged == nullptr) {
          shards.ForEachKind(
              [&](int shard, int count) { count_shards(shard, PriceOf(shard), count * blocks); });
          return;
        }
        // Blocks are in proportion to what their ranks are.
        for (int i = 0; i < shards.count; ++i) {
          count_shards(shards.at(i), PriceOn(i, shards.at(i)), blocks);
        }
      });
      priced[t].push_back(p);
    }
    if (!rules_.has_off_device()) continue;
    std::ranges::stable_sort(priced[t], [](const PricedLayout& a, const PricedLayout& b) {
      return a.bytes[MemoryTier::kDevice] < b.bytes[MemoryTier::kDevice];
    });
  }
  return priced;
}

std::vector<Construction::Item> Construction::ItemsOf(const Choice& choice, Order order,
                                                      const std::vector<int>& urgency) const {
  const auto key_of = [&](int table, double share) {
    const PricedLayout& p = At(choice, table);
    if (order == Order::kByBytes) {
      return share * static_cast<double>(p.bytes[MemoryTier::kDevice]);
    }
    // A share of less than 1 is a shard of its own.
    return order == Order::kByPeak && share == 1 ? std::max(p.peak_ms, MemoryMs(p.peak_bytes))
                                                 : share * (p.price_ms + MemoryMs(p.bytes));
  };
  std::vector<Item> items;
  std::vector<bool> grouped(choice.size(), false);
  const auto add_group = [&](const std::vector<int>& tables) {
    Item item{.tables = tables};
    for (const int table : tables) {
      if (At(grouped, table)) return;  // with its host's group
      At(grouped, table) = true;
      item.key += key_of(table, 1);
      item.urgency = std::max(item.urgency, At(urgency, table));
    }
    items.push_back(std::move(item));
  };
  for (const std::vector<int>& tables : rules_.host_groups()) add_group(tables);
  for (const std::vector<int>& tables : rules_.rank_groups()) add_group(tables);
  for (std::size_t t = 0; t < choice.size(); ++t) {
    if (grouped[t]) continue;
    const int table = static_cast<int>(t);
    const TableLayout& layout = choice[t].layout;
    const bool scattered =
        SpreadOf(layout.type) == Spread::kRank && layout.type != ShardingType::kTableColumnWise;
    if (!scattered) {
      items.push_back({{table}, 0, urgency[t], key_of(table, 1)});
      continue;
    }
    const auto widths = layouts_.Widths(table, layout.blocks);
    const double dim = static_cast<double>(context_.request().tables[t].embedding_dim);
    for (const std::int64_t cols : widths) {
      items.push_back({{table}, cols, urgency[t], key_of(table, static_cast<double>(cols) / dim)});
    }
  }
  std::ranges::stable_sort(items, [&](const Item& a, const Item& b) {
    if (a.urgency != b.urgency) return a.urgency > b.urgency;
    // What takes some memory of many ranks finds none once one of them is full.
    const bool a_is_wide = leaves_device_ && a.tables.size() == 1 && a.cols == 0;
    const bool b_is_wide = leaves_device_ && b.tables.size() == 1 && b.cols == 0;
    return a_is_wide != b_is_wide ? a_is_wide : a.key > b.key;
  });
  return items;
}

void Construction::Reset(double price_ms) {
  const std::size_t ranks = static_cast<std::size_t>(rules_.num_ranks());
  price_ms_.assign(ranks, 0.0);
  bytes_.assign(ranks, {});
  value_ms_.assign(ranks, 0.0);
  for (const auto& [tier, name] : kWords<MemoryTier>) {
    ms_a_byte_[tier] = leaves_device_ ? price_ms / std::max(1.0, room_bytes_[tier]) : 0;
  }
}

int Construction::Build(const Choice& choice, Order order, const std::vector<int>& urgency,
                        ConstructionFallback fallback) {
  fallback_ = fallback;
  solution_.Clear();
  added_.clear();
  placed_otherwise_.assign(choice.size(), false);
  leaves_device_ =
      std::ranges::any_of(choice, [](const PricedLayout& p) { return p.layout.residency != 0; });
  double price_ms = 0;
  for (const PricedLayout& p : choice) price_ms += p.price_ms;
  Reset(price_ms);
  for (const Unit& unit : solution_.fixed_units()) {
    if (context_.ShouldStop()) return unit.table;
    Add(unit);
  }
  for (const Item& item : ItemsOf(choice, order, urgency)) {
    if (item.tables.size() == 1 && solution_.fixed(item.tables.front()) != nullptr) continue;
    if (At(placed_otherwise_, item.tables.front())) continue;
    if (context_.ShouldStop() || !Place(item, choice)) return item.tables.front();
  }
  return -1;
}

bool Construction::Place(const Item& item, const Choice& choice) {
  if (item.tables.size() > 1) return PlaceGroup(item, choice);
  const int table = item.tables.front();
  const TableLayout& layout = At(choice, table).layout;
  const Unit block{
      .table = table, .type = layout.type, .cols = item.cols, .residency = layout.residency};
  const bool placed =
      item.cols == 0 ? PlaceTable(table, layout, -1, -1) : PlaceBlock(block, 1, -1, -1);
  return placed || PlaceOtherwise(table);
}

bool Construction::PlaceOtherwise(int table) {
  if (fallback_.layouts == nullptr) return false;
  const std::vector<PricedLayout>& layouts = (*fallback_.layouts)[static_cast<std::size_t>(table)];
  RemoveUnitsOf(table);
  std::vector<std::pair<double, std::size_t>> by_price;
  for (std::size_t l = 0; l < layouts.size(); ++l) {
    const PricedLayout& p = layouts[l];
    by_price.emplace_back(p.price_ms + MemoryMs(p.bytes) +
                              rules_.num_ranks() * std::max(0.0, p.peak_ms - fallback_.limit_ms),
                          l);
  }
  std::ranges::sort(by_price);
  for (const auto& [price_ms, l] : by_price) {
    if (!PlaceTable(table, layouts[l].layout, -1, -1)) continue;
    At(placed_otherwise_, table) = true;
    return true;
  }
  return false;
}

// host, rank: the only one that will do; -1: any.
bool Construction::PlaceTable(int table, const TableLayout& layout, int host, int rank) {
  const std::size_t before = added_.size();
  const auto place_blocks = [&](int on_host) {
    for (const std::int64_t cols : layouts_.Widths(table, layout.blocks)) {
      const Unit unit{
          .table = table, .type = layout.type, .cols = cols, .residency = layout.residency};
      if (!PlaceBlock(unit, layout.holders, on_host, rank)) {
        Undo(before);
        return false;
      }
    }
    return true;
  };
  if (layout.type != ShardingType::kTableColumnWise || host >= 0 || rank >= 0) {
    return place_blocks(host);
  }
  const std::vector<int> hosts = HostsByValue(rules_.hosts(), [&](const HostRanks& at) {
    const auto first = value_ms_.begin() + at.first;
    return std::accumulate(first, first + at.count, 0.0) / at.count;
  });
  return std::ranges::any_of(hosts, place_blocks);
}

bool Construction::PlaceBlock(Unit unit, int holders, int host, int rank) {
  const HostRanks all{0, rules_.num_ranks()};
  const HostRanks within = rank >= 0 ? HostRanks{rank, 1} : host >= 0 ? solution_.host(host) : all;
  context_.AddWork(Work::kConstruction, static_cast<std::size_t>(within.count));
  if (TakesEveryRank(unit.type) && within.count != all.count) return false;
  const auto is_within = [&](const HostRanks& ranks) {
    return ranks.first >= within.first && ranks.first + ranks.count <= within.first + within.count;
  };
  const std::span<const int> numbers = numbers_;
  const std::optional<Unit> placed = OnLowestPlace(
      unit,
      {numbers.subspan(static_cast<std::size_t>(within.first),
                       static_cast<std::size_t>(within.count)),
       numbers.first(static_cast<std::size_t>(solution_.num_hosts())), holders},
      value_ms_, solution_, shard_table_,
      [&](int r, int shard) {
        return rules_.of(unit.table).ranks->contains(r) && solution_.RuleAllows(unit.table, r) &&
               solution_.Fits(r, shard_table_.bytes(shard));
      },
      [&](const Unit& at) {
        // Many ranks may be low and full, so that is asked first.
        return (at.spread() != Spread::kRank || solution_.HasRoomFor(at.place, at.shards.full)) &&
               (at.spread() != Spread::kOneHost || is_within(solution_.host(at.place))) &&
               solution_.Allows({}, std::span(&at, 1));
      });
  if (!placed) return false;
  Add(*placed);
  return true;
}

bool Construction::PlaceGroup(const Item& item, const Choice& choice) {
  const std::size_t before = added_.size();
  const auto layout_of = [&](int table) -> const TableLayout& { return At(choice, table).layout; };
  const auto on_rank = [&](const std::vector<int>& tables, int rank) {
    const std::size_t start = added_.size();
    for (const int table : tables) {
      if (solution_.fixed(table) != nullptr) continue;
      if (!rules_.of(table).ranks->contains(rank) ||
          !PlaceTable(table, layout_of(table), -1, rank)) {
        Undo(start);
        return false;
      }
    }
    return true;
  };
  const auto on_some_rank = [&](const std::vector<int>& tables, HostRanks among) {
    std::vector<int> ranks(static_cast<std::size_t>(among.count));
    std::iota(ranks.begin(), ranks.end(), among.first);
    SortByValue(ranks, value_ms_);
    return std::ranges::any_of(ranks, [&](int rank) { return on_rank(tables, rank); });
  };
  const TableRules& first = rules_.of(item.tables.front());
  if (first.host_group < 0) return on_some_rank(item.tables, {0, rules_.num_ranks()});

  const auto on_host = [&](int host) {
    for (const int table : item.tables) {
      const int group = rules_.of(table).rank_group;
      if (group < 0) {
        if (solution_.fixed(table) != nullptr) continue;
        if (PlaceTable(table, layout_of(table), host, -1)) continue;
      } else {
        const std::vector<int>& together = At(rules_.rank_groups(), group);
        if (together.front() != table || on_some_rank(together, solution_.host(host))) continue;
      }
      Undo(before);
      return false;
    }
    return true;
  };
  const std::vector<int> hosts = HostsByValue(rules_.hosts(), [&](const HostRanks& at) {
    const auto begin = value_ms_.begin() + at.first;
    return *std::min_element(begin, begin + at.count);
  });
  return std::ranges::any_of(hosts, on_host);
}

void Construction::Count(int rank, int shard, int sign) {
  const std::size_t r = static_cast<std::size_t>(rank);
  price_ms_[r] += sign * PriceOn(rank, shard);
  value_ms_[r] = price_ms_[r];
  for (const auto& [tier, name] : kWords<MemoryTier>) {
    bytes_[r][tier] += sign * static_cast<double>(shard_table_.tier_bytes(shard)[tier]);
    if (leaves_device_) value_ms_[r] = std::max(value_ms_[r], ms_a_byte_[tier] * bytes_[r][tier]);
  }
}

void Construction::Count(const Unit& unit, int sign) {
  solution_.ForEachShard(unit, [&](int rank, int shard) { Count(rank, shard, sign); });
}

void Construction::Add(const Unit& unit) {
  added_.push_back(solution_.Add(unit));
  Count(unit, 1);
}

void Construction::RemoveUnitsOf(int table) {
  const std::span<const int> units = solution_.units_of_table(table);
  const std::vector<int> ids(units.begin(), units.end());
  for (const int id : ids) {
    Count(solution_.unit(id), -1);
    std::erase(added_, id);
    solution_.Remove(id);
  }
}

void Construction::Undo(std::size_t count) {
  while (added_.size() > count) {
    Count(solution_.unit(added_.back()), -1);
    solution_.Remove(added_.back());
    added_.pop_back();
  }
}

}  // namespace neuroshard
