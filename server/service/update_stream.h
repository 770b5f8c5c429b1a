// The server's end of a ShardPlanStream: UpdateStream writes for the searching thread, PlanStream
// sends the improvements of one search.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <condition_variable>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/domain/plan_request.h"
#include "neuroshard/v1/planner.pb.h"
#include "server/planner/planner.h"

namespace neuroshard {

// A stream of updates. gRPC owns it from its construction on and destroys it after Close when no
// write is in flight. One thread writes; a write waits for the previous one.
class UpdateStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // `context` is the call's. A caller that does not read for `write_timeout` loses the call.
  UpdateStream(grpc::CallbackServerContext& context, std::chrono::milliseconds write_timeout)
      : context_(context), write_timeout_(write_timeout) {}

  // Returns false when the caller is gone or does not read; the call is then cancelled.
  bool Write(const v1::ShardPlanUpdate& update);
  // Waits for the last write and ends the call. The object must not be used afterwards.
  void Close(const grpc::Status& status);

 private:
  void OnWriteDone(bool ok) override;
  void OnDone() override { delete this; }
  // Returns whether the write in flight ended in time; cancels the call if not.
  bool WaitUntilWritten() NS_EXCLUDES(mutex_);

  grpc::CallbackServerContext& context_;
  const std::chrono::milliseconds write_timeout_;
  Mutex mutex_;
  std::condition_variable written_;
  grpc::ByteBuffer bytes_;  // of the write in flight
  bool writing_ NS_GUARDED_BY(mutex_) = false;
  bool broken_ NS_GUARDED_BY(mutex_) = false;
};

// Writes every improvement, and progress at most every 50 ms. A slow reader blocks the search until
// the write timeout cancels the call.
class PlanStream final : public PlanObserver {
 public:
  // All arguments must outlive the stream.
  PlanStream(const PlanRequest& request, const Clock& clock, UpdateStream& writer)
      : request_(request), clock_(clock), writer_(writer) {}

  void OnImprovement(const PlanAnswer& answer) override;
  void OnProgress(double share) override;

 private:
  void Write(v1::ShardPlanUpdate& update);

  const PlanRequest& request_;
  const Clock& clock_;
  UpdateStream& writer_;
  std::string fingerprint_;  // of the request and the model, once known
  double best_cost_ms_ = 0;
  double progress_ = 0;
  std::optional<TimePoint> last_write_;
};

}  // namespace neuroshard
