#include "server/service/plan_stream.h"

#include <chrono>

#include "server/service/planner_messages.h"

namespace neuroshard {
namespace {

// Smooth for a person who watches, nothing for the network.
constexpr auto kProgressInterval = std::chrono::milliseconds(50);

}  // namespace

void PlanStream::OnImprovement(const PlanAnswer& answer) {
  if (fingerprint_.empty()) {
    fingerprint_ = FingerprintOf(request_, answer);
  }
  best_cost_ms_ = answer.cost.embedding_cost_ms;
  v1::ShardPlanUpdate update;
  *update.mutable_best() = EncodePlanAnswer(request_, answer, fingerprint_);
  Write(update);
}

void PlanStream::OnProgress(double share) {
  progress_ = share;
  if (last_write_.has_value() && clock_.Now() - *last_write_ < kProgressInterval) return;
  v1::ShardPlanUpdate update;
  Write(update);
}

void PlanStream::Write(v1::ShardPlanUpdate& update) {
  update.set_progress(progress_);
  update.set_best_cost_ms(best_cost_ms_);
  // Failure means that the caller is gone; the call's stop signal says so too.
  writer_.Write(update);
  last_write_ = clock_.Now();
}

}  // namespace neuroshard
