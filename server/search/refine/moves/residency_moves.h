// Residency moves: tables go to device memory, to host memory or to SSD, get more or less cache, and
// change places while others make room for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/domain/memory_pools.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/core/search_context.h"
#include "server/search/core/shard_table.h"
#include "server/search/refine/moves/table_placer.h"
#include "server/search/refine/objective/move_bench.h"
#include "server/search/refine/solution/move.h"
#include "server/search/refine/solution/solution.h"

namespace neuroshard {

// How far the moves go.
enum class ResidencyNeighbourhood {
  kPromotions,  // a table of the rank has another residency
  kPlaces       // also: units change ranks, or swap
};

// The neighbourhood of one rank for tables in several memories. A move is a change that may need
// more device memory than there is, completed by demotions: on every rank that is too full, those
// tables get less device memory that lose least time a byte. Where tables may be on SSD, hosts that
// are too full give tables to it in the same way. Where a move leaves device memory free, tables are
// promoted that gain most. Every move is complete (it removes and adds all units of the tables it
// changes, but for those that only change ranks), has room in device memory (in all memories where
// tables may be on SSD), and keeps the rules on residencies; Solution::Allows says the rest. Only
// for requests whose tables may be off their devices. For one thread.
class ResidencyMoves : MoveTools {
 public:
  // `bench` must outlive it.
  explicit ResidencyMoves(MoveBench& bench);

  // Adds to `list` what relieves `source`. Moves with estimates above `most_ms` may be left out.
  void Collect(int source, ResidencyNeighbourhood neighbourhood, double most_ms, MoveList& list);

 private:
  // A table in another residency, and what a rank gains by it.
  struct Change {
    int table = 0;
    int residency = 0;
    // By shards on the rank: of its device, below 0 where it takes more, and of memories that are
    // faster than the one where the rows are then; of dynamic tables, of all.
    TierBytes freed_bytes = {};
    double lost_ms = 0;  // below 0 where it gains

    std::int64_t on_device() const { return freed_bytes[MemoryTier::kDevice]; }
  };
  // Positions of changes, by a key that ascends.
  using Order = std::vector<std::pair<double, int>>;
  // Those of the tables on a rank, and the orders in which one is looked for.
  struct RankChanges {
    std::vector<Change> all;  // by table
    ByTier<Order> by_loss;    // that free bytes of a memory, by the least that one byte can cost
    Order by_gain;  // that save time for device memory, by what they save a byte, most first
    bool is_listed = false;  // in this Collect
  };

  // A shard that comes to a rank (sign 1) or leaves it, which left_ has counted.
  struct Touched {
    int rank = 0;
    int shard = 0;
    int sign = 1;
  };

  void Begin();
  // Begins with units going to other places, each as moved(id, place) is there.
  template <typename Moved>
  void BeginWith(std::initializer_list<std::pair<int, int>> places, const Moved& moved);
  // Removes and adds all units of the table in the residency.
  void SetResidency(int table, int residency);
  void Count(const Unit& unit, int sign);
  void Remove(int id);
  void Add(const Unit& unit);
  // The unit in the residency, its shards predicted or to be.
  Unit InResidency(Unit unit, int residency);
  // Listed once in a Collect.
  const RankChanges& ChangesOf(int rank);
  void ListChanges(int rank, std::vector<Change>& changes);
  std::int64_t FreeBytes(int rank) const { return left_->LeftOnDevice(rank); }
  // Whether the move, and so much more compute of shards on the rank, is estimated at more
  // than most_ms_ for certain. Only where a rank's communication is its own; otherwise it waits less
  // when it computes more.
  bool IsTooSlow(int rank, double more_ms) const {
    return pricer_.separable() && pricer_.objective().rank(rank).total_ms() + At(more_ms_, rank) +
                                          pricer_.compute_scale(rank) * more_ms >
                                      most_ms_;
  }
  // Whether the table can take the residency as far as device memory goes.
  bool Fits(int table, int residency);
  // The change that loses least time a byte of those that are `needed`, if that is less than
  // `best_ratio`, which it is then. Takes time in the changes that might lose less.
  const Change* LeastLoss(const RankChanges& changes, MemoryTier tier, std::int64_t needed,
                          double& best_ratio) const;
  bool Demote(int rank);
  // Frees a memory that the rank shares with its host: tables go to a slower one.
  bool DemoteFrom(MemoryTier tier, int rank);
  // By demotions, wherever the move needs it. Whether there is room then.
  bool MakeRoom();
  void Promote(int rank);
  // The change that gains most a byte of those that there is room for; null: none.
  const Change* MostGain(const RankChanges& changes, std::int64_t free);
  // Completes the move and adds it to the list, if it can be and the list wants it.
  void Complete(MoveList& list);
  void TryPromotions(MoveList& list);
  // A unit, and what it adds to the time of a rank.
  struct UnitShare {
    double share_ms = 0;
    int id = 0;
  };
  // The units that may change places and cost the rank most.
  std::vector<UnitShare> Costliest(std::span<const int> ids, int rank, std::size_t most) const;
  void TryShiftsAndSwaps(int source, MoveList& list);
  // Blocks of a host go to another one, or swap with one there.
  void TryHostBlocks(int source, MoveList& list);
  bool IsFree(int table) const;

  TablePlacer placer_;

  std::vector<int> tables_;  // of the source, costliest first
  // Scratch of one move.
  std::vector<int> removed_;
  std::vector<Unit> added_;
  std::vector<double> more_ms_;  // by rank: of its total
  std::vector<Touched> touched_;
  std::vector<bool> changed_;  // by table
  std::vector<int> changed_tables_;
  // Scratch of one Collect.
  double most_ms_ = 0;
  std::optional<MemoryPools> left_;  // after the move
  std::vector<RankChanges> changes_of_rank_;
  const bool splits_;  // whether tables may take less host memory for more of the device
  std::vector<int> listed_ranks_;
  std::vector<int> on_rank_;
};

}  // namespace neuroshard
