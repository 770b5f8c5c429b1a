#include "server/search/feasibility/table_places.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "common/base/positions.h"
#include "common/domain/memory_use.h"
#include "server/evaluate/lay_out.h"

namespace neuroshard {
namespace {

std::vector<Block> BlocksOf(const std::vector<std::int64_t>& widths) {
  std::vector<Block> blocks;
  std::int64_t offset = 0;
  for (const std::int64_t width : widths) {
    blocks.push_back({offset, width});
    offset += width;
  }
  return blocks;
}

// Whether `count` items can go to so many places in `most` ways or fewer.
bool AreFew(std::size_t places, std::size_t count, std::size_t most) {
  std::size_t assignments = 1;
  for (std::size_t i = 0; i < count; ++i) {
    assignments *= places;
    if (assignments > most) return false;
  }
  return true;
}

// Calls `visit` with each sequence of `length` members of `among` until it says true.
template <typename Visit>
bool ForEachSequence(const std::vector<int>& among, std::size_t length, std::vector<int>& sequence,
                     const Visit& visit) {
  if (sequence.size() == length) return visit();
  for (const int member : among) {
    sequence.push_back(member);
    const bool done = ForEachSequence(among, length, sequence, visit);
    sequence.pop_back();
    if (done) return true;
  }
  return false;
}

}  // namespace

TablePlaces::TablePlaces(const PlanRequest& request, const CompiledRules& rules)
    : request_(request),
      rules_(rules),
      table_layouts_(request, rules),
      residencies_(request.tables.size()) {
  if (rules.has_off_device()) ChooseResidencies();
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    const int table = static_cast<int>(t);
    layouts_.push_back(table_layouts_.Of(table));
    std::erase_if(layouts_.back(), [&](const TableLayout& layout) {
      const bool on_device =
          !residencies_[t].off_device() || layout.type == ShardingType::kDataParallel;
      return on_device && !rules.of(table).device_types.contains(layout.type);
    });
    // Copies take most room.
    std::stable_partition(layouts_.back().begin(), layouts_.back().end(), [](const auto& layout) {
      return layout.type != ShardingType::kDataParallel;
    });
  }
}

void TablePlaces::ChooseResidencies() {
  ByTier<double> room = {};
  for (const SharedMemory& memory : kSharedMemories) {
    for (const std::int64_t bytes : request_.topology.*memory.of_hosts) {
      room[memory.tier] += static_cast<double>(bytes);
    }
  }
  const auto use = [&](std::size_t t, const Residency& residency) {
    const Table& of = request_.tables[t];
    return ShardMemory(request_, of, LayoutIn(residency, ShardingType::kTableWise, 1),
                       of.num_embeddings, of.embedding_dim);
  };
  const Residency uvm = {ComputeKernel::kFusedUvm, 0};
  // Who has no other choice first, then the largest.
  const auto order = PositionsDescending(residencies_.size(), [&](std::size_t t) {
    return std::pair(rules_.LeastOnDevice(static_cast<int>(t)).size() < 2,
                     static_cast<double>(use(t, uvm).by_tier()[MemoryTier::kHost]));
  });
  for (const std::size_t t : order) {
    const TableRules& of = rules_.of(static_cast<int>(t));
    const std::vector<int> places = rules_.PlacesOffDevice(static_cast<int>(t));
    for (std::size_t i = 0; i < places.size(); ++i) {
      const Residency& residency = rules_.residency(places[i]);
      const TierBytes taken = use(t, residency).by_tier();
      const bool fits = std::ranges::all_of(kSharedMemories, [&](const auto& memory) {
        const double bytes = static_cast<double>(taken[memory.tier]);
        return bytes == 0 || bytes <= room[memory.tier];
      });
      const bool is_last = i + 1 == places.size() && of.device_types.empty();
      if (!fits && !is_last) continue;
      residencies_[t] = residency;
      for (const SharedMemory& memory : kSharedMemories) {
        room[memory.tier] -= static_cast<double>(taken[memory.tier]);
      }
      break;
    }
  }
}

PlacedTable TablePlaces::Arrange(int table, ShardingType type, std::span<const Block> columns,
                                 std::span<const int> places) const {
  const RowCut& cut = rules_.row_cut(table);
  std::vector<Shard> shards = LayOut(TableOf(table), type, columns, places, rules_.hosts(), cut);
  const int row_shards = LayoutOf(type, KernelOf(type), shards).row_shards;
  const bool copies = type == ShardingType::kDataParallel;
  const Residency residency = copies ? Residency{} : At(residencies_, table);
  return {LayoutIn(residency, type, row_shards, cut), std::move(shards)};
}

PlacedTable TablePlaces::OnRank(int table, int rank) const {
  if (!rules_.of(table).ranks->contains(rank)) return {};
  if (rules_.of(table).kept != nullptr) {
    if (rules_.of(table).ranks->ranks().size() > 1) return {};
    return As(table, *rules_.of(table).kept);
  }
  for (const TableLayout& layout : At(layouts_, table)) {
    // What takes every rank is on one where there is no other.
    const bool on_one_rank = SpreadOf(layout.type) == Spread::kRank ||
                             (TakesEveryRank(layout.type) && rules_.num_ranks() == 1);
    if (!on_one_rank) continue;
    const std::vector<Block> columns = BlocksOf(table_layouts_.Widths(table, layout.blocks));
    const std::vector<int> places(columns.size(), rank);
    return Arrange(table, layout.type, columns, places);
  }
  return {};
}

bool TablePlaces::Offer(int table, ShardingType type, std::span<const Block> columns,
                        std::span<const int> places, const Visit& visit) const {
  const PlacedTable placed_table = Arrange(table, type, columns, places);
  return static_cast<int>(placed_table.shards.size()) <= rules_.of(table).max_shards &&
         visit(placed_table);
}

// Blocks of one host's or of all ranks, or blocks of hosts.
bool TablePlaces::BlocksOn(int table, ShardingType type, std::span<const Block> columns,
                           const std::vector<int>& among, const PlacementLedger& placed,
                           std::size_t most, const Visit& visit) const {
  if (among.empty()) return false;
  std::vector<int> places;
  if (AreFew(among.size(), columns.size(), most)) {
    return ForEachSequence(among, columns.size(), places,
                           [&] { return Offer(table, type, columns, places, visit); });
  }
  const auto ranks_at = [&](int place) {
    return SpreadOf(type) == Spread::kOneHost ? At(rules_.hosts(), place) : HostRanks{place, 1};
  };
  std::vector<std::int64_t> left;
  for (const int place : among) {
    const HostRanks ranks = ranks_at(place);
    left.push_back(placed.left_bytes(ranks.first));
    for (int r = ranks.first + 1; r < ranks.first + ranks.count; ++r) {
      left.back() = std::min(left.back(), placed.left_bytes(r));
    }
  }
  for (const Block& block : columns) {
    const std::size_t at = static_cast<std::size_t>(std::ranges::max_element(left) - left.begin());
    places.push_back(among[at]);
    const int row_shards = ranks_at(among[at]).count;
    const std::int64_t rows = CeilBlocks(TableOf(table).num_embeddings, row_shards).front().size;
    const ShardLayout layout = LayoutIn(At(residencies_, table), type, row_shards);
    left[at] -= ShardMemory(request_, TableOf(table), layout, rows, block.size).total_bytes();
  }
  return Offer(table, type, columns, places, visit);
}

bool TablePlaces::ForEachPlacesOf(int table, const TableLayout& layout,
                                  const PlacementLedger& placed, std::size_t most,
                                  const Visit& visit) const {
  const RankSet& ranks = *rules_.of(table).ranks;
  const std::vector<Block> columns = BlocksOf(table_layouts_.Widths(table, layout.blocks));
  // Blocks go to those places together of which key_of says the same.
  const auto on_places = [&](const std::vector<int>& places, const std::vector<int>& keys,
                             const auto& key_of) {
    return std::ranges::any_of(keys, [&](int key) {
      std::vector<int> of_key;
      std::copy_if(places.begin(), places.end(), std::back_inserter(of_key),
                   [&](int place) { return key_of(place) == key; });
      return BlocksOn(table, layout.type, columns, of_key, placed, most, visit);
    });
  };
  if (layout.type == ShardingType::kTableColumnWise) {
    return on_places(ranks.ranks(), ranks.hosts(), [&](int rank) { return rules_.host_of(rank); });
  }
  const Spread spread = SpreadOf(layout.type);
  if (spread == Spread::kRank) {
    return BlocksOn(table, layout.type, columns, ranks.ranks(), placed, most, visit);
  }
  if (spread == Spread::kOneHost) {
    return on_places(ranks.whole_hosts(), ranks.whole_host_sizes(),
                     [&](int host) { return At(rules_.hosts(), host).count; });
  }
  if (spread != Spread::kSubset) return Offer(table, layout.type, columns, {}, visit);
  const std::size_t holders = static_cast<std::size_t>(layout.holders);
  std::vector<int> places;
  if (AreFew(ranks.ranks().size(), holders, most)) {
    return ForEachSequence(ranks.ranks(), holders, places, [&] {
      return std::ranges::is_sorted(places) &&
             std::adjacent_find(places.begin(), places.end()) == places.end() &&
             Offer(table, layout.type, columns, places, visit);
    });
  }
  places = ranks.ranks();
  std::ranges::stable_sort(
      places, [&](int a, int b) { return placed.left_bytes(a) > placed.left_bytes(b); });
  places.resize(holders);
  std::ranges::sort(places);
  return Offer(table, layout.type, columns, places, visit);
}

bool TablePlaces::ForEachOther(int table, const PlacementLedger& placed, std::size_t most,
                               const Visit& visit) const {
  if (rules_.of(table).kept != nullptr) return visit(As(table, *rules_.of(table).kept));
  const auto& layouts = At(layouts_, table);
  return std::ranges::any_of(layouts, [&](const TableLayout& layout) {
    const bool on_one_rank = SpreadOf(layout.type) == Spread::kRank && layout.blocks == 1;
    return !on_one_rank && ForEachPlacesOf(table, layout, placed, most, visit);
  });
}

bool TablePlaces::ForEachShift(int table, const PlacedTable& placed_table,
                               const Visit& visit) const {
  const TableRules& rules = rules_.of(table);
  if (rules.kept != nullptr || SpreadOf(placed_table.layout.type) != Spread::kRank ||
      placed_table.shards.size() < 2)
    return false;
  for (std::size_t s = 0; s < placed_table.shards.size(); ++s) {
    for (const int rank : rules.ranks->ranks()) {
      if (rank == placed_table.shards[s].rank) continue;
      PlacedTable shifted = placed_table;
      shifted.shards[s].rank = rank;
      if (placed_table.layout.type == ShardingType::kTableColumnWise &&
          rules_.host_of(rank) != rules_.host_of(placed_table.shards[s].rank)) {
        if (!rules.types.contains(ShardingType::kColumnWise)) continue;
        shifted.layout.type = ShardingType::kColumnWise;
      }
      if (visit(shifted)) return true;
    }
  }
  return false;
}

}  // namespace neuroshard
