#include "server/search/refine/solution/move.h"

#include <algorithm>
#include <tuple>

namespace neuroshard {
namespace {

bool Before(const Move& a, const Move& b) {
  return std::tie(a.estimate_ms, a.order) < std::tie(b.estimate_ms, b.order);
}

}  // namespace

void MoveList::Clear() {
  next_order_ = 0;
  heap_.clear();
  removed_.clear();
  added_.clear();
}

void MoveList::Add(double estimate_ms, std::span<const int> removed, std::span<const Unit> added) {
  if (!Wants(estimate_ms)) return;
  if (heap_.size() == most_) {
    std::pop_heap(heap_.begin(), heap_.end(), Before);
    heap_.pop_back();
  }
  Move e;
  e.estimate_ms = estimate_ms;
  e.order = next_order_++;
  e.removed_begin = static_cast<std::uint32_t>(removed_.size());
  e.removed_count = static_cast<std::uint32_t>(removed.size());
  e.added_begin = static_cast<std::uint32_t>(added_.size());
  e.added_count = static_cast<std::uint32_t>(added.size());
  removed_.insert(removed_.end(), removed.begin(), removed.end());
  added_.insert(added_.end(), added.begin(), added.end());
  heap_.push_back(e);
  std::push_heap(heap_.begin(), heap_.end(), Before);
}

std::span<const Move> MoveList::Sorted() {
  std::ranges::sort(heap_, Before);
  return heap_;
}

}  // namespace neuroshard
