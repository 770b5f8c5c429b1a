#include "server/service/update_stream.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/server_context.h>

#include "common/rpc/call_threads.h"
#include "server/service/planner_messages.h"

namespace neuroshard {

bool UpdateStream::Write(const v1::ShardPlanUpdate& update) {
  bool own_buffer = false;
  grpc::ByteBuffer bytes;
  if (!grpc::SerializationTraits<v1::ShardPlanUpdate>::Serialize(update, &bytes, &own_buffer).ok())
    return false;
  if (!WaitUntilWritten()) return false;
  {
    const MutexLock lock(mutex_);
    bytes_.Swap(&bytes);
    writing_ = true;
  }
  StartWrite(&bytes_);
  return true;
}

bool UpdateStream::WaitUntilWritten() {
  {
    const MutexLock lock(mutex_);
    if (!writing_) return !broken_;
  }
  // Ends after the lock: OnWriteDone must not wait for a turn.
  const CallThreads::OffTurn off_turn;
  MutexLock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + write_timeout_;
  while (writing_ && lock.WaitUntil(written_, deadline)) {
  }
  if (writing_ && !broken_) {
    broken_ = true;
    context_.TryCancel();
  }
  return !broken_;
}

void UpdateStream::OnWriteDone(bool ok) {
  // Notified under the lock: Close may end the call, and this object, as soon as it is released.
  const MutexLock lock(mutex_);
  writing_ = false;
  broken_ = broken_ || !ok;
  written_.notify_all();
}

void UpdateStream::Close(const grpc::Status& status) {
  WaitUntilWritten();
  {
    MutexLock lock(mutex_);
    // A cancelled write ends soon.
    while (writing_) lock.Wait(written_);
  }
  Finish(status);
}

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
