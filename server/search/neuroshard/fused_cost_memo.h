// Predicted compute costs of what ranks may hold, remembered over a whole search (NeuroShard,
// section 3.3: caching) and evaluated in batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/search/search_context.h"

namespace neuroshard {

// A rank's shards in placement order, as a 64-bit hash. The order is part of it, because a sum of
// floats depends on it. Two contents share a value with probability n^2 / 2^65 for n contents,
// below 1e-7 for a million; the search would then misjudge one placement, and still price its plan
// right.
using ContentHash = std::uint64_t;

inline constexpr ContentHash kNoContent = 0;

// The content after one more shard (the finaliser of SplitMix64).
constexpr ContentHash AddToContent(ContentHash content, int shard) {
  std::uint64_t x = content + 0x9E3779B97F4A7C15U * (static_cast<std::uint64_t>(shard) + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  x ^= x >> 31;
  return x == kNoContent ? 1 : x;
}

class FusedCostMemo {
 public:
  using Slot = std::uint32_t;

  // `width` is that of the representation. `context` must outlive the memo; its statistics count
  // the evaluations.
  FusedCostMemo(SearchContext& context, std::size_t width);

  // The slot of `content`, whose summed representation is `sum`. New contents are queued for the
  // next EvaluateQueued.
  Slot Find(ContentHash content, const float* sum);

  // Predicts what is queued in one batch. Only then is cost_ms() known for it.
  void EvaluateQueued();

  float cost_ms(Slot slot) const { return costs_ms_[slot]; }

  // Forgets everything once there is too much. Slots given out before are void then; call with
  // nothing queued.
  void TrimIfLarge();

 private:
  struct Entry {
    ContentHash content = kNoContent;  // kNoContent: free
    Slot slot = 0;
  };

  void Grow();
  Entry& Probe(ContentHash content);

  SearchContext& context_;
  const std::size_t width_;
  std::vector<Entry> entries_;  // open addressing, a power of two, at most half full
  std::vector<float> costs_ms_;
  std::vector<float> queued_sums_;  // [queued, width]; the queued slots are the last ones
  std::vector<ComputeCost> evaluated_;
};

}  // namespace neuroshard
