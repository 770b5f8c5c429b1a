// Streams that a stop has to end.
#pragma once

#include <list>

#include "client/stub/worker_client.h"
#include "common/base/mutex.h"

namespace neuroshard {

// Thread-safe. A stream is removed before it is destroyed.
class OpenStreams {
 public:
  // Cancelled at once when CancelAll came first.
  void Add(ComputeStream* stream) {
    const MutexLock lock(mutex_);
    streams_.push_back(stream);
    if (cancelled_) stream->Cancel();
  }

  void Remove(ComputeStream* stream) {
    const MutexLock lock(mutex_);
    streams_.remove(stream);
  }

  void CancelAll() {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    for (ComputeStream* stream : streams_) stream->Cancel();
  }

 private:
  Mutex mutex_;
  std::list<ComputeStream*> streams_ NS_GUARDED_BY(mutex_);
  bool cancelled_ NS_GUARDED_BY(mutex_) = false;
};

}  // namespace neuroshard
