// Unary calls that another thread can end.
#pragma once

#include <grpcpp/client_context.h>

#include <chrono>
#include <list>

#include "client/stub/call_trace.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/rpc/deadline.h"

namespace neuroshard {

// The calls in progress. Thread-safe.
class CancellableCalls {
 public:
  // Runs `call` with a context that CancelAll ends.
  template <typename Call>
  Status Run(std::chrono::milliseconds deadline, const Call& call) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(deadline));
    AddTrace(context);
    {
      const MutexLock lock(mutex_);
      if (cancelled_) return absl::CancelledError("cancelled");
      contexts_.push_back(&context);
    }
    Status status = call(context);
    const MutexLock lock(mutex_);
    contexts_.remove(&context);
    return status;
  }

  void CancelAll() {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
  }

 private:
  Mutex mutex_;
  std::list<grpc::ClientContext*> contexts_ NS_GUARDED_BY(mutex_);
  bool cancelled_ NS_GUARDED_BY(mutex_) = false;
};

}  // namespace neuroshard
