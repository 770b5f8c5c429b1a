// CallThreads: where calls do their work, apart from the threads on which gRPC reports events.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "common/base/mutex.h"

namespace neuroshard {

// Starts threads as they are needed, no more than told, and keeps them. Thread-safe. The destructor
// runs what is queued and joins. Threads may yield to the rest of the process, gRPC's threads above
// all: they, and threads that they start, are `niceness` steps lower in the priority of Linux's
// scheduler than the process (setpriority(2)), 19 at the most.
class CallThreads {
 public:
  explicit CallThreads(int max_threads, int niceness = 0)
      : max_threads_(max_threads), niceness_(niceness) {}
  ~CallThreads();
  CallThreads(const CallThreads&) = delete;
  CallThreads& operator=(const CallThreads&) = delete;

  // `work` waits for its turn when all threads are busy; admission decides before whether it
  // should.
  void Run(std::function<void()> work);

 private:
  void Loop();

  const int max_threads_;
  const int niceness_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_ NS_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ NS_GUARDED_BY(mutex_);
  int idle_ NS_GUARDED_BY(mutex_) = 0;
  bool stopping_ NS_GUARDED_BY(mutex_) = false;
};

}  // namespace neuroshard
