#include "server/search/core/rank_cost_cache.h"

namespace neuroshard {
namespace {

// Contents and rows of a queue in a usual search; others grow them.
constexpr std::size_t kUsualContents = 1U << 13;
constexpr std::size_t kUsualQueue = 4096;

}  // namespace

RankCostCache::RankCostCache(SearchContext& context, std::size_t width, std::size_t max_contents)
    : context_(context),
      width_(width),
      max_contents_(max_contents),
      has_kinds_(context.model().num_kinds() > 1),
      costs_ms_(1, 0.0F) {
  slots_.reserve(kUsualContents);
  costs_ms_.reserve(kUsualContents);
  queued_sums_.reserve(kUsualQueue * width);
  evaluated_.reserve(kUsualQueue);
}

RankCostCache::Slot RankCostCache::AddKnown(float cost_ms) {
  costs_ms_.push_back(cost_ms);
  return static_cast<Slot>(costs_ms_.size() - 1);
}

void RankCostCache::EvaluateQueued() {
  if (queued_sums_.empty()) return;
  const std::size_t queued = queued_sums_.size() / width_;
  evaluated_.resize(queued);
  context_.model().ComputeCosts(queued_sums_, evaluated_, queued_kinds_);
  context_.AddWork(Work::kComputeCost, queued);
  context_.statistics().compute_evaluations += static_cast<std::int64_t>(queued);
  const std::size_t first = costs_ms_.size() - queued;
  for (std::size_t i = 0; i < queued; ++i) costs_ms_[first + i] = evaluated_[i].total_ms;
  queued_sums_.clear();
  queued_kinds_.clear();
}

void RankCostCache::Clear() {
  costs_ms_.resize(1);
  slots_.clear();
}

}  // namespace neuroshard
