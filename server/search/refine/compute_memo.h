// Predicted compute costs of what ranks hold or might hold, remembered over a search and evaluated
// in batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/search/refine/shard_book.h"
#include "server/search/refine/solution.h"
#include "server/search/search_context.h"

namespace neuroshard {

class ComputeMemo {
 public:
  using Slot = std::uint32_t;

  // Both must outlive the memo; the context's statistics count the predictions.
  ComputeMemo(SearchContext& context, const ShardBook& book);

  // The slot of a rank of `solution` without one of its shards and with another (none: -1).
  Slot Find(const Solution& solution, int rank, int without, int with);

  // The same for any change: the rank as it will be, and what is added to its sum (representation,
  // `width` entries).
  Slot Find(const Solution::Rank& changed, const double* sum, const double* added);

  // Predicts what is queued, in one batch. Only then is cost_ms() known for it.
  void EvaluateQueued();

  float cost_ms(Slot slot) const { return costs_ms_[slot]; }

  // Forgets everything once there is too much. Slots given out before are void then; call with
  // nothing queued.
  void TrimIfLarge();

 private:
  struct Entry {
    RankContent content = 0;  // 0: free
    Slot slot = 0;
  };
  static constexpr Slot kNothingHeld = 0;

  static RankContent ContentAfter(const Solution& solution, int rank, int without, int with);
  // Null: known already, or nothing to predict; otherwise the row to fill in.
  float* Queue(const Solution::Rank& changed, Slot& slot);
  void Grow();
  Entry& Probe(RankContent content);

  SearchContext& context_;
  const ShardBook& book_;
  const bool additive_;
  std::vector<Entry> entries_;  // open addressing, a power of two, at most half full
  std::vector<float> costs_ms_;
  std::vector<float> queued_sums_;  // [queued, width]; the queued slots are the last ones
  std::vector<ComputeCost> evaluated_;
};

}  // namespace neuroshard
