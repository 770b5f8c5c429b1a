// NeuroShard's inner search (section 3.3, "greedy grid search"): the best table-wise placement of
// given pieces, for many split sequences and all dim caps at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "server/cost/cost_model.h"
#include "server/evaluate/price_plan.h"
#include "server/search/core/rank_cost_cache.h"
#include "server/search/core/search_context.h"
#include "server/search/core/shard_table.h"
#include "server/search/placement/placement.h"

namespace neuroshard {

// A state of the outer search: the tables after some column splits.
struct SplitSequence {
  std::vector<Piece> pieces;
  std::vector<int> shards;  // shard_table ids of the pieces
};

SplitSequence MakeSequence(std::vector<Piece> pieces, ShardTable& shard_table);

// Returns the sequence with piece `index` halved: the first half stays in its place, the second one
// is appended (NeuroShard, section 3.3).
SplitSequence Halve(const SplitSequence& sequence, std::size_t index, ShardTable& shard_table);

// Returns the pieces to try for the next split, in ascending order: the `num_candidates` largest by
// bytes and the `num_candidates` costliest by predicted single-table cost (ties: lower index),
// without those that cannot be halved.
std::vector<std::size_t> SplitCandidates(const SplitSequence& sequence, int num_candidates,
                                         const ShardTable& shard_table);

// Partial placements, kept in arrays. A branch is a placement of the first pieces of one split
// sequence, for the range of dim cap factors under which greedy has made the same decisions so far.
// For one thread.
class BranchTable {
 public:
  struct Head {
    int sequence;
    int first_cap;  // indices into the cap factors, both included
    int last_cap;
  };
  struct RankState {
    std::int64_t used_bytes = 0;
    std::int64_t dims = 0;
    CommLoad load;
    RankContent content = kNoContent;
    float cost_ms = 0;  // predicted compute cost of the content
  };

  // Removes all branches and allocates for `max_branches`; within that number nothing below
  // allocates.
  void Reset(std::size_t num_ranks, std::size_t width, std::size_t max_pieces,
             std::size_t max_branches);

  // Adds a branch with nothing placed.
  std::size_t Add(const Head& head);
  // Adds a branch with what `branch` has placed. Invalidates references.
  std::size_t Copy(std::size_t branch, const Head& head);

  std::size_t size() const { return heads_.size(); }
  Head& head(std::size_t branch) { return heads_[branch]; }
  RankState& rank(std::size_t branch, std::size_t rank) {
    return ranks_[branch * num_ranks_ + rank];
  }
  // Summed representation of the rank's shards.
  std::span<float> sum(std::size_t branch, std::size_t rank) {
    return std::span(sums_).subspan((branch * num_ranks_ + rank) * width_, width_);
  }
  std::span<int> rank_of_piece(std::size_t branch) {
    return std::span(rank_of_piece_).subspan(branch * max_pieces_, max_pieces_);
  }

  // Bytes of one branch.
  static std::size_t BytesPerBranch(std::size_t num_ranks, std::size_t width,
                                    std::size_t max_pieces) {
    return num_ranks * (sizeof(RankState) + width * sizeof(float)) + max_pieces * sizeof(int);
  }

 private:
  std::size_t num_ranks_ = 0;
  std::size_t width_ = 0;
  std::size_t max_pieces_ = 0;
  std::vector<Head> heads_;
  std::vector<RankState> ranks_;    // [branches, ranks]
  std::vector<float> sums_;         // [branches, ranks, width]
  std::vector<int> rank_of_piece_;  // [branches, max_pieces]
};

struct GridResult {
  double cost_ms = std::numeric_limits<double>::infinity();  // infinite: no cap has a plan
  std::vector<int> rank_of_piece;                            // empty then

  bool found() const { return !rank_of_piece.empty(); }
};

// Returns `steps` factors evenly between 1.0 and 1.5, ascending.
std::vector<double> DimCapFactors(int steps);

// Share of the whole search that a run is, for progress.
struct ProgressRange {
  double begin = 0;
  double end = 0;
};

// Runs greedy for each sequence and each cap factor c. Pieces in descending predicted single-table
// cost (ties: higher index first) go to the rank, among those where memory stays within the rank's
// capacity and dims + dim <= c * (all dims / ranks), whose predicted fused compute cost is lowest
// before the piece is added (an empty rank: 0; ties: less memory used, then the lower index). No
// such rank: this c has no plan. The plan of a sequence is the cheapest in embedding cost (ties:
// smaller c), as in the released code (NeurSharder._greedy, _table_wise_shard).
//
// All sequences and caps advance together, one piece per step. Caps share a branch until they first
// differ; a step predicts one cost per branch, of the rank that got the piece, all in one batch.
// Results do not depend on what runs together, as long as the model's rows are independent. For one
// thread.
class GreedyGrid {
 public:
  // Both arguments must outlive the grid.
  GreedyGrid(SearchContext& context, ShardTable& shard_table);

  // Returns how many sequences of up to `max_pieces` pieces one Run may take within its memory; at
  // least 1.
  std::size_t SequencesPerRun(std::size_t max_pieces, std::size_t num_caps) const;

  // Returns one result per sequence. `cap_factors` are ascending; infinity is no cap. Without a
  // plan when the context stops.
  std::vector<GridResult> Run(std::span<const SplitSequence> sequences,
                              std::span<const double> cap_factors, ProgressRange progress);

 private:
  struct Candidate {
    std::size_t rank;
    int first_cap;  // the first cap of the branch under which the rank is feasible
  };
  // The rank that caps [first_cap, last_cap] of a branch choose.
  struct Choice {
    int first_cap;
    int last_cap;
    std::size_t rank;
  };
  // A rank that got a piece, with the slot of its new cost.
  struct Prediction {
    std::size_t branch;
    std::size_t rank;
    RankCostCache::Slot slot;
  };

  void SetDimLimits(std::span<const double> cap_factors);
  // Starts a branch per sequence; returns the number of steps.
  std::size_t Start(std::span<const SplitSequence> sequences);
  // Returns false when the context stopped.
  bool Step(std::span<const SplitSequence> sequences, std::size_t step);
  void SortPieces(const SplitSequence& sequence, std::vector<int>& order) const;
  // Fills candidates_.
  void CollectCandidates(std::size_t branch, int shard);
  // Fills choices_ from candidates_.
  void Choose(std::size_t branch);
  void Place(std::size_t branch, std::size_t piece, std::size_t rank, int shard);
  std::vector<GridResult> PriceBranches(std::span<const SplitSequence> sequences);

  SearchContext& context_;
  ShardTable& shard_table_;
  RankCostCache cost_cache_;
  const std::vector<std::int64_t> available_bytes_;
  std::vector<double> dim_limits_;  // one a cap factor, ascending

  // State of a run, kept for its memory.
  BranchTable branches_;
  std::vector<std::vector<int>> orders_;  // per sequence
  std::vector<std::size_t> live_;
  std::vector<std::size_t> next_live_;
  std::vector<Candidate> candidates_;
  std::vector<Choice> choices_;
  std::vector<Prediction> predictions_;
  std::vector<float> compute_ms_;
  std::vector<float> forward_loads_;
  std::vector<float> backward_loads_;
  PlacementPrices prices_;
};

}  // namespace neuroshard
