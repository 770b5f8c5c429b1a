// Cache of rank costs: predicted compute costs of what ranks hold or might hold, remembered over a
// search and evaluated in batches (NeuroShard, section 3.3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/hash.h"
#include "server/search/core/search_context.h"

namespace neuroshard {

// The shards of a rank as a 64-bit hash of their ids in a ShardTable. Two of n contents collide
// with probability n^2 / 2^65, below 1e-7 for a million; a search would then misjudge one
// placement, and still price its plan right.
using RankContent = std::uint64_t;

inline constexpr RankContent kNoContent = 0;

// Returns the part of a content for the rank's kind (BoundCostModel), where costs of several kinds
// are remembered together; 0 for kind 0.
constexpr RankContent ContentOfKind(int kind) {
  return MixBits(~kGoldenGamma * static_cast<std::uint64_t>(kind));
}

// Returns what one shard adds to a content without order; subtracting it removes the shard, so that
// undone moves find their costs again. For sums in doubles, which hide the order.
constexpr RankContent ContentOf(int shard) {
  return MixBits(kGoldenGamma * (static_cast<std::uint64_t>(shard) + 1));
}

// Returns the content after one more shard, where order matters, as for sums of floats.
constexpr RankContent AddToContent(RankContent content, int shard) {
  const std::uint64_t mixed =
      MixBits(content + kGoldenGamma * (static_cast<std::uint64_t>(shard) + 1));
  return mixed == kNoContent ? 1 : mixed;
}

// Maps contents to slots and slots to costs. A content gets one slot and is predicted once, until
// the cache forgets it. Find takes constant time and a copy of the sum for a new content;
// EvaluateQueued takes one batch of the cost model. For one thread.
class RankCostCache {
 public:
  using Slot = std::uint32_t;
  static constexpr Slot kEmptyRank = 0;  // costs 0

  // `width` is that of a representation. TrimIfLarge clears the cache from `max_contents` contents
  // on, of about 36 bytes each. `context` must outlive the cache; its statistics and work count the
  // predictions.
  RankCostCache(SearchContext& context, std::size_t width, std::size_t max_contents);

  // Returns the slot of a content of at least one shard on a rank of `kind` (BoundCostModel). A new
  // content is queued for the next EvaluateQueued; `fill` writes its summed representation into the
  // span that it gets.
  template <typename Fill>
  Slot Find(RankContent content, int kind, const Fill& fill) {
    context_.AddWork(Work::kRankCost, 1);
    if (kind != 0) content += ContentOfKind(kind);
    const auto [entry, added] = slots_.try_emplace(content, static_cast<Slot>(costs_ms_.size()));
    if (added) {
      costs_ms_.push_back(0);
      if (has_kinds_) queued_kinds_.push_back(kind);
      queued_sums_.resize(queued_sums_.size() + width_);
      fill(std::span(queued_sums_).last(width_));
    }
    return entry->second;
  }

  // Returns a slot for a known cost. Nothing may be queued.
  Slot AddKnown(float cost_ms);

  // Predicts what is queued; cost_ms() is not valid for it before.
  void EvaluateQueued();

  float cost_ms(Slot slot) const { return costs_ms_[slot]; }

  // Clears a cache that is full, which invalidates all slots. Nothing may be queued.
  void TrimIfLarge() {
    if (slots_.size() >= max_contents_) Clear();
  }
  void Clear();

 private:
  SearchContext& context_;
  const std::size_t width_;
  const std::size_t max_contents_;
  const bool has_kinds_;
  absl::flat_hash_map<RankContent, Slot> slots_;
  std::vector<float> costs_ms_;     // by slot
  std::vector<float> queued_sums_;  // [queued, width]; the queued slots are the last ones
  std::vector<int> queued_kinds_;   // [queued]; empty where all ranks are of one kind
  std::vector<ComputeCost> evaluated_;
};

}  // namespace neuroshard
