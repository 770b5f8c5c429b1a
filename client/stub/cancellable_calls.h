// Unary calls that another thread can end.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <list>

#include "common/base/mutex.h"

namespace neuroshard {

// The calls in progress. Thread-safe.
class CancellableCalls {
 public:
  // Runs `call` with a context that CancelAll ends.
  template <typename Call>
  grpc::Status Run(std::chrono::milliseconds deadline, const Call& call) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + deadline);
    {
      const MutexLock lock(mutex_);
      if (cancelled_) return {grpc::StatusCode::CANCELLED, "cancelled"};
      contexts_.push_back(&context);
    }
    grpc::Status status = call(context);
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
