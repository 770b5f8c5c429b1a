#include "server/search/refine/compute_memo.h"

namespace neuroshard {
namespace {

constexpr std::size_t kFirstEntries = 1U << 14;
constexpr std::size_t kMostSlots = 1U << 20;  // 36 MB with their entries

}  // namespace

ComputeMemo::ComputeMemo(SearchContext& context, const ShardBook& book)
    : context_(context),
      book_(book),
      additive_(context.model().info().additive_compute),
      entries_(additive_ ? 0 : kFirstEntries),
      costs_ms_(1, 0.0F) {}

ComputeMemo::Slot ComputeMemo::Find(const Solution& solution, int rank, int without, int with) {
  Solution::Rank changed = solution.rank(rank);
  changed.content = ContentAfter(solution, rank, without, with);
  if (without >= 0) {
    changed.single_costs_ms -= static_cast<double>(book_.single_cost_ms(without));
    --changed.shards;
  }
  if (with >= 0) {
    changed.single_costs_ms += static_cast<double>(book_.single_cost_ms(with));
    ++changed.shards;
  }
  Slot slot = kNothingHeld;
  float* const row = Queue(changed, slot);
  if (row == nullptr) return slot;
  const double* const sum = solution.sum(rank);
  const float* const less = without >= 0 ? book_.phi(without) : nullptr;
  const float* const more = with >= 0 ? book_.phi(with) : nullptr;
  for (std::size_t w = 0; w < book_.width(); ++w) {
    double value = sum[w];
    if (less != nullptr) value -= static_cast<double>(less[w]);
    if (more != nullptr) value += static_cast<double>(more[w]);
    row[w] = static_cast<float>(value);
  }
  return slot;
}

RankContent ComputeMemo::ContentAfter(const Solution& solution, int rank, int without, int with) {
  RankContent content = solution.rank(rank).content;
  if (without >= 0) content -= ContentOf(without);
  if (with >= 0) content += ContentOf(with);
  return content;
}

ComputeMemo::Slot ComputeMemo::Find(const Solution::Rank& changed, const double* sum,
                                    const double* added) {
  Slot slot = kNothingHeld;
  float* const row = Queue(changed, slot);
  if (row == nullptr) return slot;
  for (std::size_t w = 0; w < book_.width(); ++w) row[w] = static_cast<float>(sum[w] + added[w]);
  return slot;
}

float* ComputeMemo::Queue(const Solution::Rank& changed, Slot& slot) {
  if (changed.shards == 0) return nullptr;
  if (additive_) {
    slot = static_cast<Slot>(costs_ms_.size());
    costs_ms_.push_back(static_cast<float>(changed.single_costs_ms));
    return nullptr;
  }
  const RankContent content = changed.content == 0 ? 1 : changed.content;
  Entry& entry = Probe(content);
  if (entry.content == content) {
    slot = entry.slot;
    return nullptr;
  }
  slot = static_cast<Slot>(costs_ms_.size());
  entry = {content, slot};
  costs_ms_.push_back(0);
  queued_sums_.resize(queued_sums_.size() + book_.width());
  if (costs_ms_.size() * 2 > entries_.size()) Grow();
  return queued_sums_.data() + queued_sums_.size() - book_.width();
}

void ComputeMemo::EvaluateQueued() {
  if (queued_sums_.empty()) return;
  const std::size_t queued = queued_sums_.size() / book_.width();
  evaluated_.resize(queued);
  context_.model().ComputeCosts(queued_sums_, evaluated_);
  context_.AddWork(Work::kComputeCost, queued);
  context_.statistics().compute_evaluations += static_cast<std::int64_t>(queued);
  const std::size_t first = costs_ms_.size() - queued;
  for (std::size_t i = 0; i < queued; ++i) costs_ms_[first + i] = evaluated_[i].total_ms;
  queued_sums_.clear();
}

void ComputeMemo::TrimIfLarge() {
  if (!additive_ && costs_ms_.size() < kMostSlots) return;
  costs_ms_.resize(1);
  if (!additive_) entries_.assign(kFirstEntries, {});
}

void ComputeMemo::Grow() {
  std::vector<Entry> old(entries_.size() * 2);
  old.swap(entries_);
  for (const Entry& entry : old) {
    if (entry.content != 0) Probe(entry.content) = entry;
  }
}

ComputeMemo::Entry& ComputeMemo::Probe(RankContent content) {
  const std::size_t mask = entries_.size() - 1;
  std::size_t i = content & mask;
  while (entries_[i].content != 0 && entries_[i].content != content) i = (i + 1) & mask;
  return entries_[i];
}

}  // namespace neuroshard
