#include "server/evaluate/relayouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>

#include "common/base/positions.h"
#include "common/domain/held_shards.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table_names.h"
#include "server/evaluate/lay_out.h"
#include "server/evaluate/rules/demands.h"

namespace neuroshard {
namespace {

constexpr std::size_t kMaxPlaces = 8;
constexpr int kMaxParts = 8;

// 2, 4, 8 even slices at multiples of kColumnAlignment, or TorchRec's blocks.
std::vector<std::vector<Block>> ColumnSlices(const Table& table, const TableRules& rules) {
  const std::int64_t dim = table.embedding_dim;
  std::vector<std::vector<Block>> all;
  if (rules.column_block > 0) {
    if (rules.column_block < dim) all.push_back(WidthBlocks(dim, rules.column_block));
    return all;
  }
  const std::int64_t granules = (dim + kColumnAlignment - 1) / kColumnAlignment;
  for (int parts = 2; parts <= std::min<std::int64_t>(kMaxParts, granules); parts *= 2) {
    std::vector<Block> blocks = EvenBlocks(granules, parts);
    for (Block& block : blocks) {
      block.offset *= kColumnAlignment;
      block.size = std::min(block.size * kColumnAlignment, dim - block.offset);
    }
    const bool wide = std::ranges::all_of(blocks, [&](const Block& block) {
      return block.size >= rules.min_column_width && block.size <= rules.max_column_width;
    });
    if (wide) all.push_back(std::move(blocks));
  }
  return all;
}

// The table, those that share its ranks or hosts and the unpooled tables that decide the width of
// its column blocks, ascending.
std::vector<int> Company(const PlanRequest& request, int table) {
  const Constraints& constraints = request.constraints;
  std::vector<int> company = {table};
  const Table& of = At(request.tables, table);
  if (of.kind == TableKind::kEmbedding) {
    company.clear();
    for (std::size_t t = 0; t < request.tables.size(); ++t) {
      const Table& other = request.tables[t];
      if (other.kind == of.kind && other.module == of.module &&
          other.embedding_dim == of.embedding_dim) {
        company.push_back(static_cast<int>(t));
      }
    }
  }
  for (std::size_t seen = 0; seen != company.size();) {
    seen = company.size();
    for (const TableGroup& group : constraints.colocate) {
      const bool joins = std::ranges::any_of(
          group.tables, [&](int t) { return std::ranges::binary_search(company, t); });
      if (!joins) continue;
      std::vector<int> joined;
      std::set_union(company.begin(), company.end(), group.tables.begin(), group.tables.end(),
                     std::back_inserter(joined));
      company = std::move(joined);
    }
  }
  return company;
}

}  // namespace

std::string TypeObstacle(const PlanRequest& request, TypeSet default_types, int table,
                         ShardingType type) {
  if (!IsTypeOf(At(request.tables, table).kind, type)) {
    return "TorchRec runs no unpooled table so (kind)";
  }
  const std::vector<int> company = Company(request, table);
  const Demands demands(request, default_types, company);
  const int position =
      static_cast<int>(std::lower_bound(company.begin(), company.end(), table) - company.begin());
  const auto keeps_out = [&](const std::vector<std::size_t>& kept) {
    const CompiledRules rules(demands.With(kept), TypeSet::All());
    return !rules.of(position).types.contains(type);
  };
  if (!keeps_out(Positions(demands.size()))) return "";
  std::string obstacle;
  for (const std::size_t demand : MinimalSet(demands.size(), keeps_out)) {
    if (!obstacle.empty()) obstacle += "; ";
    obstacle += fmt::format("{} ({})", demands.Path(demand), demands.Text(demand));
  }
  return obstacle.empty() ? "the topology has too few ranks for it" : obstacle;
}

// The proposals of one table that was taken off the ledger, which stays as it was.
class RelayoutFinder::Proposals {
 public:
  Proposals(RelayoutFinder& finder, int table, std::span<const double> rank_cost_ms)
      : finder_(finder),
        table_(table),
        of_(At(finder.request_.tables, table)),
        rules_(finder.rules_.of(table)),
        ranks_(rules_.ranks->ranks()),
        hosts_(rules_.ranks->whole_hosts()) {
    std::ranges::stable_sort(ranks_, {}, [&](int rank) { return At(rank_cost_ms, rank); });
    std::ranges::stable_sort(hosts_, {}, [&](int host) {
      const HostRanks& ranks = At(finder_.rules_.hosts(), host);
      const auto costs = rank_cost_ms.subspan(static_cast<std::size_t>(ranks.first),
                                              static_cast<std::size_t>(ranks.count));
      return std::accumulate(costs.begin(), costs.end(), 0.0) / ranks.count;
    });
  }

  Relayouts Of(ShardingType type, const Residency& residency) {
    found_ = {};
    found_.type = type;
    residency_ = type == ShardingType::kDataParallel ? Residency{} : residency;
    obstacle_ = PlacementLedger::Answer::kYes;
    const Block whole = {0, of_.embedding_dim};
    const std::span<const Block> uncut(&whole, 1);
    const std::vector<int>& places = SpreadOf(type) == Spread::kOneHost ? hosts_ : ranks_;
    if (TakesEveryRank(type)) {
      Try(uncut, {});
    } else if (type == ShardingType::kRowWiseSubset) {
      TrySubsets(uncut);
    } else if (!CutsColumns(type)) {
      TryEach(uncut, places);
    } else {
      for (const std::vector<Block>& slices : ColumnSlices(of_, rules_)) {
        type == ShardingType::kTableColumnWise ? SpreadOnHosts(slices) : SpreadOn(slices, places);
      }
    }
    if (found_.layouts.empty()) found_.reason = Reason();
    return std::move(found_);
  }

 private:
  ShardLayout LayoutOfShards(std::span<const Shard> shards) const {
    const int row_shards = LayoutOf(found_.type, ComputeKernel::kFused, shards).row_shards;
    return LayoutIn(residency_, found_.type, row_shards, finder_.rules_.row_cut(table_));
  }

  // Whether the shards have a place beside all others, which they take then.
  bool Put(const ShardLayout& layout, std::span<const Shard> shards) {
    const PlacementLedger::Answer answer = finder_.ledger_.Put(table_, layout, shards);
    if (answer == PlacementLedger::Answer::kYes) return true;
    obstacle_ = answer;
    full_tier_ = finder_.ledger_.full_tier();
    return false;
  }

  bool Try(std::span<const Block> columns, std::span<const int> places) {
    std::vector<Shard> shards = LayOut(of_, found_.type, columns, places, finder_.rules_.hosts(),
                                       finder_.rules_.row_cut(table_));
    if (shards.size() > static_cast<std::size_t>(rules_.max_shards)) {
      obstacle_ = PlacementLedger::Answer::kAgainstRules;
      return false;
    }
    const ShardLayout layout = LayoutOfShards(shards);
    if (!Put(layout, shards)) return false;
    finder_.ledger_.Take(table_, layout, shards);
    found_.layouts.push_back({layout, std::move(shards)});
    return true;
  }

  void TryEach(std::span<const Block> columns, const std::vector<int>& places) {
    std::size_t tries = 0;
    for (std::size_t i = 0; i < places.size() && tries < kMaxPlaces; ++i) {
      if (Try(columns, std::span(&places[i], 1))) ++tries;
    }
  }

  // Blocks on the first places that take one, each place once as long as there are others.
  void SpreadOn(const std::vector<Block>& blocks, const std::vector<int>& places) {
    const std::vector<int> chosen = Choose(blocks, places);
    if (!chosen.empty()) Try(blocks, chosen);
  }

  void SpreadOnHosts(const std::vector<Block>& blocks) {
    std::vector<int> hosts;  // in the order of their cheapest ranks
    for (const int rank : ranks_) {
      const int host = finder_.rules_.host_of(rank);
      if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
      if (hosts.size() == kMaxPlaces) break;
    }
    for (const int host : hosts) {
      std::vector<int> ranks;
      std::copy_if(ranks_.begin(), ranks_.end(), std::back_inserter(ranks),
                   [&](int rank) { return finder_.rules_.host_of(rank) == host; });
      SpreadOn(blocks, ranks);
    }
  }

  // Empty if some block finds no place.
  std::vector<int> Choose(const std::vector<Block>& blocks, const std::vector<int>& places) {
    std::vector<int> chosen;
    std::vector<PlacedTable> put;
    std::vector<int> times(places.size());
    for (const Block& block : blocks) {
      const std::size_t before = chosen.size();
      for (const std::size_t i :
           PositionsDescending(places.size(), [&](std::size_t at) { return -times[at]; })) {
        std::vector<Shard> shards =
            LayOut(of_, found_.type, std::span(&block, 1), std::span(&places[i], 1),
                   finder_.rules_.hosts(), finder_.rules_.row_cut(table_));
        const ShardLayout layout = LayoutOfShards(shards);
        if (!Put(layout, shards)) continue;
        put.push_back({layout, std::move(shards)});
        chosen.push_back(places[i]);
        ++times[i];
        break;
      }
      if (chosen.size() == before) break;
    }
    for (const auto& [layout, shards] : put) finder_.ledger_.Take(table_, layout, shards);
    if (chosen.size() < blocks.size()) chosen.clear();
    return chosen;
  }

  // The first 2, 4, 8 ranks that take a part.
  void TrySubsets(std::span<const Block> columns) {
    for (int parts = 2; parts <= kMaxParts; parts *= 2) {
      std::vector<int> holders;
      for (const int rank : ranks_) {
        if (static_cast<int>(holders.size()) == parts) break;
        const Shard part = {0, (of_.num_embeddings + parts - 1) / parts, 0, of_.embedding_dim,
                            rank};
        const ShardLayout layout = LayoutIn(residency_, found_.type, parts);
        if (!Put(layout, std::span(&part, 1))) continue;
        finder_.ledger_.Take(table_, layout, std::span(&part, 1));
        holders.push_back(rank);
      }
      if (static_cast<int>(holders.size()) < parts) return;
      std::ranges::sort(holders);
      Try(columns, holders);
    }
  }

  std::string Reason() const {
    switch (obstacle_) {
      case PlacementLedger::Answer::kNoRoom: {
        const bool of_device = full_tier_ == MemoryTier::kDevice;
        return fmt::format("no place with enough free {} was found",
                           of_device ? "memory" : SharedMemoryOf(full_tier_).amount);
      }
      case PlacementLedger::Answer::kOverBudget:
        return "no place within the migration budget was found";
      case PlacementLedger::Answer::kAgainstRules:
        return "no place was found that the constraints allow beside the other tables";
      case PlacementLedger::Answer::kYes:
        break;
    }
    return "its columns cannot be cut so";
  }

  RelayoutFinder& finder_;
  const int table_;
  const Table& of_;
  const TableRules& rules_;
  std::vector<int> ranks_;  // the table's, cheapest first
  std::vector<int> hosts_;  // that it may use whole, cheapest on average first
  Relayouts found_;
  Residency residency_;                                               // of those
  PlacementLedger::Answer obstacle_ = PlacementLedger::Answer::kYes;  // the last one
  MemoryTier full_tier_ = MemoryTier::kDevice;                        // of the last kNoRoom
};

RelayoutFinder::RelayoutFinder(const PlanRequest& request, TypeSet default_types,
                               const CompiledRules& rules, const Plan& plan)
    : request_(request), default_types_(default_types), rules_(rules), ledger_(request, rules) {
  const std::vector<int> table_of = TablesOf(plan, request.tables);
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const TablePlan& entry = plan.tables[t];
    if (table_of[t] < 0) continue;
    ledger_.PutAnyway(table_of[t], LayoutOf(entry, rules.row_cut(table_of[t])), entry.shards);
  }
}

bool RelayoutFinder::StaysAsItIs(int table) const {
  return request_.migration.has_value() && !request_.migration->only_types.empty() &&
         At(TablesInPlace(request_), table) != nullptr;
}

std::vector<Relayouts> RelayoutFinder::Find(int table, const TablePlan& entry,
                                            std::span<const double> rank_cost_ms) {
  const ShardLayout layout = LayoutOf(entry, rules_.row_cut(table));
  ledger_.Take(table, layout, entry.shards);
  std::vector<Relayouts> all;
  Proposals proposals(*this, table, rank_cost_ms);
  for (const auto& word : kWords<ShardingType>) {
    const Residency residency = ResidencyOf(entry);
    if (word.value == entry.sharding_type) {
      if (!residency.off_device()) continue;
      Relayouts& own = all.emplace_back();
      own.type = word.value;
      own.reason = StaysAsItIs(table) ? "its kernel stays (migration.only_types)"
                   : residency.tier() == MemoryTier::kHost
                       ? "constraints demand a kernel with rows in host memory"
                       : "constraints allow no kernel with rows there";
      if (rules_.of(table).device_types.contains(word.value)) own = proposals.Of(word.value, {});
      if (!own.reason.empty()) own.reason = "in device memory: " + own.reason;
    } else if (rules_.of(table).types.contains(word.value) &&
               (residency.off_device() || rules_.of(table).device_types.contains(word.value))) {
      all.push_back(proposals.Of(word.value, residency));
    } else {
      all.push_back({word.value, {}, TypeObstacle(request_, default_types_, table, word.value)});
    }
  }
  ledger_.PutAnyway(table, layout, entry.shards);
  return all;
}

}  // namespace neuroshard
