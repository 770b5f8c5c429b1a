// Guards around calls of Gloo: its I/O threads do not push aside the threads that they serve, and a
// dead peer does not end the process.
#pragma once

#include <sched.h>

#include <csignal>

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

// Gloo writes to its sockets with writev, which raises SIGPIPE when the peer is gone, and the
// default action of that ends the process. While a guard lives, the signal is held back on its
// thread (and on threads that the thread starts, for good); one that came is dropped, so that only
// the error of the write is left.
class SigpipeGuard {
 public:
  SigpipeGuard();
  ~SigpipeGuard();
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  sigset_t previous_mask_;
  bool was_pending_;
};

}  // namespace neuroshard
