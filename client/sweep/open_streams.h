// Streams that a stop has to end.
#pragma once

#include <list>
#include <mutex>

#include "client/stub/worker_client.h"

namespace neuroshard {

// Thread-safe. A stream is removed before it is destroyed.
class OpenStreams {
 public:
  // Cancelled at once when CancelAll came first.
  void Add(ComputeStream* stream) {
    const std::lock_guard lock(mutex_);
    streams_.push_back(stream);
    if (cancelled_) stream->Cancel();
  }

  void Remove(ComputeStream* stream) {
    const std::lock_guard lock(mutex_);
    streams_.remove(stream);
  }

  void CancelAll() {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (ComputeStream* stream : streams_) stream->Cancel();
  }

 private:
  std::mutex mutex_;
  std::list<ComputeStream*> streams_;
  bool cancelled_ = false;
};

}  // namespace neuroshard
