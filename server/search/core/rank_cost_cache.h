// Cache of rank costs: predicted compute costs of what ranks hold or might hold, remembered over a
// search (NeuroShard, section 3.3: caching) and evaluated in batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/search/core/rank_content.h"
#include "server/search/core/search_context.h"

namespace neuroshard {

// Costs by slots, slots by contents. A content gets one slot and is predicted once, until the cache
// forgets. Find takes constant time and a copy of the sum for a new content; EvaluateQueued one
// batch of the cost model. For one thread.
class RankCostCache {
 public:
  using Slot = std::uint32_t;
  static constexpr Slot kEmptyRank = 0;  // costs 0

  // `width`: of a representation. `max_contents`: TrimIfLarge forgets from so many on; each takes
  // about 36 bytes. `context` must outlive the cache; its statistics and work count the
  // predictions.
  RankCostCache(SearchContext& context, std::size_t width, std::size_t max_contents);

  // The slot of a content of at least one shard. A new one is queued for the next EvaluateQueued;
  // `fill` gets a span to write its summed representation to. `kind`: of the rank (BoundCostModel).
  template <typename Fill>
  Slot Find(RankContent content, int kind, const Fill& fill) {
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

  // A slot for a cost that needs no prediction. With nothing queued.
  Slot AddKnown(float cost_ms);

  // Predicts what is queued. Only then is cost_ms() known for it.
  void EvaluateQueued();

  float cost_ms(Slot slot) const { return costs_ms_[slot]; }

  // Forgets everything once there is too much. Slots given out before are void then; call with
  // nothing queued.
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
