#include "server/search/refine/exchange.h"

#include <algorithm>
#include <tuple>

namespace neuroshard {
namespace {

bool Before(const Exchange& a, const Exchange& b) {
  return std::tie(a.estimate_ms, a.order) < std::tie(b.estimate_ms, b.order);
}

}  // namespace

void ExchangeList::Clear() {
  added_ = 0;
  heap_.clear();
  leaving_.clear();
  coming_.clear();
}

void ExchangeList::Add(double estimate_ms, std::span<const int> leaving,
                       std::span<const Unit> coming) {
  if (!Wants(estimate_ms)) return;
  if (heap_.size() == most_) {
    std::pop_heap(heap_.begin(), heap_.end(), Before);
    heap_.pop_back();
  }
  Exchange e;
  e.estimate_ms = estimate_ms;
  e.order = added_++;
  e.leaving_begin = static_cast<std::uint32_t>(leaving_.size());
  e.leaving_count = static_cast<std::uint32_t>(leaving.size());
  e.coming_begin = static_cast<std::uint32_t>(coming_.size());
  e.coming_count = static_cast<std::uint32_t>(coming.size());
  leaving_.insert(leaving_.end(), leaving.begin(), leaving.end());
  coming_.insert(coming_.end(), coming.begin(), coming.end());
  heap_.push_back(e);
  std::push_heap(heap_.begin(), heap_.end(), Before);
}

std::span<const Exchange> ExchangeList::Sorted() {
  std::sort(heap_.begin(), heap_.end(), Before);
  return heap_;
}

}  // namespace neuroshard
