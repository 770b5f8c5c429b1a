// Branches: the unfinished placements of the inner search, in flat arrays that grow without being
// freed between waves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/cost/cost_model.h"
#include "server/search/core/rank_content.h"

namespace neuroshard {

// A branch is one placement so far of one split sequence. It stands for a range of dim cap factors,
// all those under which greedy has taken the same decisions up to here.
class BranchTable {
 public:
  // Forgets all branches and takes the memory for `max_branches`; up to so many, nothing below asks
  // for more.
  void Reset(std::size_t num_ranks, std::size_t width, std::size_t max_pieces,
             std::size_t max_branches);

  // A branch with nothing placed.
  std::size_t Add(int sequence, int first_cap, int last_cap);
  // A second branch in the state of `branch`, for another range of caps. Invalidates pointers.
  std::size_t Copy(std::size_t branch, int first_cap, int last_cap);
  void Place(std::size_t branch, std::size_t piece, std::size_t rank, int shard, const float* phi,
             const CommLoad& load, std::int64_t bytes, std::int64_t cols);

  std::size_t size() const { return heads_.size(); }
  // The predicted compute cost of what the rank holds now.
  void SetCost(std::size_t branch, std::size_t rank, float cost_ms) {
    ranks_[branch * num_ranks_ + rank].cost_ms = cost_ms;
  }

  int sequence(std::size_t branch) const { return heads_[branch].sequence; }
  int first_cap(std::size_t branch) const { return heads_[branch].first_cap; }
  int last_cap(std::size_t branch) const { return heads_[branch].last_cap; }
  void SetCaps(std::size_t branch, int first_cap, int last_cap);

  struct RankState {
    std::int64_t used_bytes = 0;
    std::int64_t dims = 0;
    CommLoad load;
    RankContent content = kNoContent;
    float cost_ms = 0;  // predicted compute cost of the content
  };
  const RankState& rank(std::size_t branch, std::size_t rank) const {
    return ranks_[branch * num_ranks_ + rank];
  }
  // Summed representation of the rank's shards.
  const float* sum(std::size_t branch, std::size_t rank) const {
    return sums_.data() + (branch * num_ranks_ + rank) * width_;
  }
  const int* rank_of_piece(std::size_t branch) const {
    return rank_of_piece_.data() + branch * max_pieces_;
  }

  // What one branch takes.
  static std::size_t BytesPerBranch(std::size_t num_ranks, std::size_t width,
                                    std::size_t max_pieces) {
    return num_ranks * (sizeof(RankState) + width * sizeof(float)) + max_pieces * sizeof(int);
  }

 private:
  struct Head {
    int sequence;
    int first_cap;  // indices into the cap factors, both included
    int last_cap;
  };

  std::size_t num_ranks_ = 0;
  std::size_t width_ = 0;
  std::size_t max_pieces_ = 0;
  std::vector<Head> heads_;
  std::vector<RankState> ranks_;    // [branches, ranks]
  std::vector<float> sums_;         // [branches, ranks, width]
  std::vector<int> rank_of_piece_;  // [branches, max_pieces]
};

}  // namespace neuroshard
