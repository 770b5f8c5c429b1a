#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "common/base/positions.h"
#include "common/domain/held_shards.h"
#include "server/evaluate/lay_out.h"
#include "server/evaluate/migration_report.h"
#include "server/search/conflict/proof_parts.h"
#include "server/search/placement/placement.h"

namespace neuroshard {
namespace {

// Bytes that each table and each rank has to give away.
class Moves {
 public:
  Moves(const PlanRequest& request, const CompiledRules& rules)
      : request_(request), rules_(rules), previous_(request) {}

  // At the least, whatever other tables do.
  std::int64_t Of(int table, TypeSet types) const {
    if (!previous_.Has(table)) return 0;
    const RankSet& ranks = *rules_.of(table).ranks;
    std::int64_t least = kMaxFlow;
    for (const auto& word : kWords<ShardingType>) {
      if (!types.contains(word.value)) continue;
      const ShardingType type = word.value;
      if (CutsColumns(type) || type == ShardingType::kRowWiseSubset) {
        least = std::min(least, HeldNowhere(table));
      } else if (TakesEveryRank(type)) {
        least = std::min(least, BytesMovedTo(table, type, {}));
      } else if (type == ShardingType::kTableWise) {
        for (const int rank : ranks.ranks()) least = std::min(least, ToRank(table, rank));
      } else {
        for (const int host : ranks.whole_hosts()) {
          least = std::min(least, BytesMovedTo(table, type, std::span(&host, 1)));
        }
      }
    }
    return least;
  }

  // Bytes that the rank lacks of the whole table.
  std::int64_t ToRank(int table, int rank) const {
    const Table& of = request_.tables[static_cast<std::size_t>(table)];
    return previous_.MovedBytes(table, previous_.kernel(table),
                                {0, of.num_embeddings, 0, of.embedding_dim, rank});
  }

 private:
  std::int64_t BytesMovedTo(int table, ShardingType type, std::span<const int> places) const {
    const Table& of = request_.tables[static_cast<std::size_t>(table)];
    const Block columns = {0, of.embedding_dim};
    std::int64_t bytes = 0;
    for (const Shard& shard :
         LayOut(of, type, {&columns, 1}, places, rules_.hosts(), rules_.row_cut(table))) {
      bytes = CappedSum(bytes, previous_.MovedBytes(table, previous_.kernel(table), shard));
    }
    return bytes;
  }

  // Bytes that no rank of the table's holds, if no two hold the same; else fewer.
  std::int64_t HeldNowhere(int table) const {
    const Table& of = request_.tables[static_cast<std::size_t>(table)];
    const double whole = static_cast<double>(of.num_embeddings) *
                         static_cast<double>(of.embedding_dim) * ElementBytes(of.weight_dtype);
    double held = 0;
    for (const int rank : rules_.of(table).ranks->ranks()) {
      held += whole - static_cast<double>(ToRank(table, rank));
    }
    return static_cast<std::int64_t>(std::clamp(whole - held, 0.0, static_cast<double>(kMaxFlow)));
  }

  const PlanRequest& request_;
  const CompiledRules& rules_;
  const PreviousPlacement previous_;
};

// What ranks held of tables cut in columns at most, of which nothing was in two places, and have no
// room for now: all of it goes where it was not.
LeastMoves WhatOverflows(const PlanRequest& request) {
  const std::vector<const TablePlan*> in_place = TablesInPlace(request);
  const std::vector<std::int64_t> available = AvailableBytes(request);
  std::vector<std::int64_t> held(available.size(), 0);
  std::vector<std::vector<int>> tables(available.size());
  for (std::size_t t = 0; t < in_place.size(); ++t) {
    if (in_place[t] == nullptr) continue;
    const Table& table = request.tables[t];
    const std::vector<Shard>& shards = in_place[t]->shards;
    std::int64_t columns = 0;
    const bool tiles = std::ranges::all_of(shards, [&](const Shard& shard) {
      const bool next = shard.row_offset == 0 && shard.rows == table.num_embeddings &&
                        shard.col_offset == columns && shard.cols > 0 &&
                        shard.cols <= table.embedding_dim - columns && shard.rank >= 0 &&
                        shard.rank < request.topology.num_ranks();
      if (next) columns += shard.cols;
      return next;
    });
    if (!tiles || columns != table.embedding_dim) continue;
    for (const Shard& shard : shards) {
      const double bytes =
          std::min<double>(kMaxFlow, Cells(shard) * ElementBytes(table.weight_dtype));
      At(held, shard.rank) = CappedSum(At(held, shard.rank), static_cast<std::int64_t>(bytes));
      At(tables, shard.rank).push_back(static_cast<int>(t));
    }
  }
  LeastMoves least;
  for (std::size_t r = 0; r < held.size(); ++r) {
    const std::int64_t over = held[r] - std::max<std::int64_t>(0, available[r]);
    if (over <= 0) continue;
    least.bytes = CappedSum(least.bytes, over);
    least.tables.insert(least.tables.end(), tables[r].begin(), tables[r].end());
  }
  return least;
}

}  // namespace

LeastMoves LeastMovesOf(const PlanRequest& request, const CompiledRules& rules,
                        const std::vector<TypeSet>& types) {
  const Moves moves(request, rules);
  LeastMoves least;
  const auto add = [&](int table, std::int64_t bytes) {
    if (bytes == 0) return;
    least.bytes = CappedSum(least.bytes, bytes);
    least.tables.push_back(table);
  };
  for (std::size_t t = 0; t < types.size(); ++t) {
    const int table = static_cast<int>(t);
    if (rules.of(table).rank_group < 0) add(table, moves.Of(table, types[t]));
  }
  for (const std::vector<int>& group : rules.rank_groups()) {
    std::int64_t bytes = kMaxFlow;
    for (const int rank : rules.of(group.front()).ranks->ranks()) {
      std::int64_t to_rank = 0;
      for (const int table : group) to_rank = CappedSum(to_rank, moves.ToRank(table, rank));
      bytes = std::min(bytes, to_rank);
    }
    add(group.front(), bytes);
  }
  LeastMoves overflow = WhatOverflows(request);
  if (overflow.bytes > least.bytes) least = std::move(overflow);
  SortUnique(least.tables);
  return least;
}

}  // namespace neuroshard
