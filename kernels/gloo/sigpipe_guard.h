// Keeps a dead peer from killing the process.
#pragma once

#include <csignal>

namespace neuroshard {

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
