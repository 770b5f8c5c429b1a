#include "server/search/neuroshard/fused_cost_memo.h"

#include <algorithm>

namespace neuroshard {
namespace {

constexpr std::size_t kFirstFusedEntries = 1U << 14;
// Rows of a step's queue in a usual search; longer ones grow it.
constexpr std::size_t kUsualQueue = 4096;
constexpr std::size_t kMostFusedSlots = 1U << 18;  // 9 MB with their entries

}  // namespace

FusedCostMemo::FusedCostMemo(SearchContext& context, std::size_t width)
    : context_(context), width_(width), entries_(kFirstFusedEntries) {
  costs_ms_.reserve(kFirstFusedEntries / 2);
  queued_sums_.reserve(kUsualQueue * width);
  evaluated_.reserve(kUsualQueue);
}

FusedCostMemo::Slot FusedCostMemo::Find(ContentHash content, const float* sum) {
  Entry& entry = Probe(content);
  if (entry.content == content) return entry.slot;
  const Slot slot = static_cast<Slot>(costs_ms_.size());
  entry = {content, slot};
  costs_ms_.push_back(0);
  queued_sums_.insert(queued_sums_.end(), sum, sum + width_);
  if (costs_ms_.size() * 2 > entries_.size()) Grow();
  return slot;
}

void FusedCostMemo::EvaluateQueued() {
  if (queued_sums_.empty()) return;
  const std::size_t queued = queued_sums_.size() / width_;
  evaluated_.resize(queued);
  context_.model().ComputeCosts(queued_sums_, evaluated_);
  context_.AddWork(Work::kComputeCost, queued);
  context_.statistics().compute_evaluations += static_cast<std::int64_t>(queued);
  const std::size_t first = costs_ms_.size() - queued;
  for (std::size_t i = 0; i < queued; ++i) costs_ms_[first + i] = evaluated_[i].total_ms;
  queued_sums_.clear();
}

void FusedCostMemo::TrimIfLarge() {
  if (costs_ms_.size() < kMostFusedSlots) return;
  costs_ms_.clear();
  std::fill(entries_.begin(), entries_.end(), Entry{});  // it will fill up again
}

void FusedCostMemo::Grow() {
  std::vector<Entry> old(entries_.size() * 2);
  old.swap(entries_);
  for (const Entry& entry : old) {
    if (entry.content != kNoContent) Probe(entry.content) = entry;
  }
}

FusedCostMemo::Entry& FusedCostMemo::Probe(ContentHash content) {
  const std::size_t mask = entries_.size() - 1;
  std::size_t i = content & mask;
  while (entries_[i].content != kNoContent && entries_[i].content != content) i = (i + 1) & mask;
  return entries_[i];
}

}  // namespace neuroshard
