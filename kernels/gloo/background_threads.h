// Keeps Gloo's I/O threads from pushing aside the threads that they serve.
#pragma once

#include <sched.h>

namespace neuroshard {

// Threads that this thread starts while the guard lives do not preempt others when they wake up
// (SCHED_BATCH, which needs no privilege; where it is refused nothing changes).
//
// Why: Gloo's I/O thread does not wait for a connection's lock. When the rank's own thread holds
// it, the I/O thread polls, and polls again at once. Woken on the core of a rank that is sending,
// it takes that core and polls until the end of its time slice, while the rank that holds the lock
// waits for the core: an exchange of 0.3 ms then takes 4 ms, a scheduler's tick.
class BackgroundThreads {
 public:
  BackgroundThreads();
  ~BackgroundThreads();
  BackgroundThreads(const BackgroundThreads&) = delete;
  BackgroundThreads& operator=(const BackgroundThreads&) = delete;

 private:
  int previous_policy_;
  sched_param previous_parameters_{};
};

}  // namespace neuroshard
