// A complete placement under improvement, with everything kept per rank that a change of a few
// units changes in a few ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/search/refine/shard_book.h"
#include "server/search/refine/unit.h"

namespace neuroshard {

// What a rank holds, as a 64-bit hash that does not depend on order: moves that are undone, or made
// in another order, find their costs again. 0 for a rank that holds nothing.
using RankContent = std::uint64_t;

// What one shard adds to the content of its rank (the finaliser of SplitMix64); subtracting takes
// it away again.
constexpr RankContent ContentOf(int shard) {
  std::uint64_t x = 0x9E3779B97F4A7C15U * (static_cast<std::uint64_t>(shard) + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

class Solution {
 public:
  // Both must outlive the solution.
  Solution(const PlanRequest& request, const ShardBook& book);

  // Sums are kept in doubles: adding and taking away floats leaves no drift that a float could
  // show.
  struct Rank {
    double forward_load = 0;
    double backward_load = 0;
    double single_costs_ms = 0;  // of its shards, each by itself
    std::int64_t bytes = 0;
    int shards = 0;
    RankContent content = 0;
  };

  // The unit's shards are known to the book and predicted. Returns its id, which stays until it is
  // removed and may be used again then.
  int Add(const Unit& unit);
  void Remove(int id);
  void Clear();

  const Unit& unit(int id) const { return units_[static_cast<std::size_t>(id)]; }
  // In no particular order, but the same for the same history.
  std::span<const int> units_of_table(int table) const {
    return of_table_[static_cast<std::size_t>(table)];
  }
  // Units with a shard on this one rank alone (Spread::kRank).
  std::span<const int> units_on_rank(int rank) const {
    return on_rank_[static_cast<std::size_t>(rank)];
  }
  // Units of Spread::kHost.
  std::span<const int> units_on_host(int host) const {
    return on_host_[static_cast<std::size_t>(host)];
  }
  // All units, by table.
  std::vector<Unit> Units() const;

  int num_ranks() const { return static_cast<int>(ranks_.size()); }
  int num_hosts() const { return static_cast<int>(hosts_.size()); }
  const HostRanks& host(int index) const { return hosts_[static_cast<std::size_t>(index)]; }
  int host_of(int rank) const { return host_of_rank_[static_cast<std::size_t>(rank)]; }
  const Rank& rank(int index) const { return ranks_[static_cast<std::size_t>(index)]; }
  // Summed representation of what the rank holds.
  const double* sum(int rank) const {
    return sums_.data() + static_cast<std::size_t>(rank) * book_->width();
  }

  // Where the unit's i-th shard is, i in [0, unit.shards.count).
  int RankOf(const Unit& unit, int i) const;

  // The number of a subset for Unit::place; `ranks` ascending and distinct, two at least.
  int AddSubset(std::vector<int> ranks);
  std::span<const int> subset(int number) const {
    return subsets_[static_cast<std::size_t>(number)];
  }

 private:
  void Apply(const Unit& unit, int sign);
  std::vector<int>* PlaceList(const Unit& unit);

  const PlanRequest* request_;
  const ShardBook* book_;
  std::vector<HostRanks> hosts_;
  std::vector<int> host_of_rank_;
  std::vector<std::vector<int>> subsets_;
  std::vector<Unit> units_;
  std::vector<int> free_ids_;
  std::vector<std::vector<int>> of_table_;
  std::vector<std::vector<int>> on_rank_;
  std::vector<std::vector<int>> on_host_;
  std::vector<Rank> ranks_;
  std::vector<double> sums_;  // [ranks, width]
};

}  // namespace neuroshard
