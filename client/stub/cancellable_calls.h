// Unary calls that another thread can end.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <list>
#include <mutex>

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
      const std::lock_guard lock(mutex_);
      if (cancelled_) return {grpc::StatusCode::CANCELLED, "cancelled"};
      contexts_.push_back(&context);
    }
    grpc::Status status = call(context);
    const std::lock_guard lock(mutex_);
    contexts_.remove(&context);
    return status;
  }

  void CancelAll() {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
  }

 private:
  std::mutex mutex_;
  std::list<grpc::ClientContext*> contexts_;
  bool cancelled_ = false;
};

}  // namespace neuroshard
