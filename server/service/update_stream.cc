#include "server/service/update_stream.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/server_context.h>

#include "common/rpc/call_threads.h"

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

}  // namespace neuroshard
