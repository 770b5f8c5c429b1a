// Room maker: completes moves of tables in several memories, by demotions and promotions of others.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/domain/memory_pools.h"
#include "server/search/refine/objective/move_bench.h"
#include "server/search/refine/solution/unit.h"

namespace neuroshard {

// Puts one move together, and makes it one that fits. Where the move needs more of a memory than
// there is, tables are demoted that lose least time a byte; where it leaves device memory free,
// tables are promoted that gain most a byte.
//
//   maker.Reset(most_ms);    // once for all moves of a solution
//   maker.Begin();
//   maker.Remove(id);
//   maker.Add(elsewhere);
//   if (maker.MakeRoom()) list.Add(estimate_ms, maker.removed(), maker.added());
//
// A change of a table's residency removes and adds all of its units, and a move changes a table
// once. Rules on residencies hold for what it adds; Solution::Allows says the rest. A demotion takes
// time in the changes of residency on a rank, of which there are up to 11 a table. For one thread.
class RoomMaker : MoveTools {
 public:
  // `bench` must outlive it.
  explicit RoomMaker(MoveBench& bench);

  // For moves of the solution as it is. Moves that are estimated at more than `most_ms` for certain
  // may be given up.
  void Reset(double most_ms);
  // Begins with no change.
  void Begin();
  void Remove(int id);
  void Add(const Unit& unit);
  // Removes and adds all units of the table.
  void SetResidency(int table, int residency);

  // Whether the table may have another residency.
  bool IsFree(int table) const;
  // Until the rank's tables fit into its device's memory. False: they cannot, or that takes too
  // long.
  bool Demote(int rank);
  // Up to three tables, into device memory that the rank has free.
  void Promote(int rank);
  // By demotions, wherever the move needs it. Whether there is room then: in device memory, and in
  // all memories where tables may leave that of hosts.
  bool MakeRoom();

  const std::vector<int>& removed() const { return removed_; }
  const std::vector<Unit>& added() const { return added_; }

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
    bool is_listed = false;  // since Reset
  };
  // A shard that comes to a rank (sign 1) or leaves it, which left_ has counted.
  struct Touched {
    int rank = 0;
    int shard = 0;
    int sign = 1;
  };

  void Count(const Unit& unit, int sign);
  // The unit in the residency, its shards predicted or to be.
  Unit InResidency(Unit unit, int residency);
  // Listed once after a Reset.
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
  // Frees a memory that the rank shares with its host: tables go to a slower one.
  bool DemoteFrom(MemoryTier tier, int rank);
  // The change that gains most a byte of those that there is room for; null: none.
  const Change* MostGain(const RankChanges& changes, std::int64_t free);

  const bool splits_;  // whether tables may take less host memory for more of the device
  double most_ms_ = 0;
  // The move.
  std::vector<int> removed_;
  std::vector<Unit> added_;
  std::vector<double> more_ms_;  // by rank: of its total
  std::vector<Touched> touched_;
  std::vector<bool> changed_;  // by table
  std::vector<int> changed_tables_;
  std::optional<MemoryPools> left_;  // after the move
  std::vector<RankChanges> changes_of_rank_;
  std::vector<int> listed_ranks_;
  std::vector<int> on_rank_;  // scratch of ListChanges
};

}  // namespace neuroshard
