#include "kernels/gloo/thread_guards.h"

#include <pthread.h>

#include <ctime>

namespace neuroshard {

BackgroundThreads::BackgroundThreads() {
  pthread_getschedparam(pthread_self(), &previous_policy_, &previous_parameters_);
  // An operator who chose another policy for the process meant it.
  if (previous_policy_ != SCHED_OTHER) return;
  const sched_param parameters{};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters);
}

BackgroundThreads::~BackgroundThreads() {
  pthread_setschedparam(pthread_self(), previous_policy_, &previous_parameters_);
}

namespace {

sigset_t OnlySigpipe() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

bool SigpipeIsPending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

SigpipeGuard::SigpipeGuard() : was_pending_(SigpipeIsPending()) {
  const sigset_t sigpipe = OnlySigpipe();
  pthread_sigmask(SIG_BLOCK, &sigpipe, &previous_mask_);
}

SigpipeGuard::~SigpipeGuard() {
  if (!was_pending_ && SigpipeIsPending()) {
    const sigset_t sigpipe = OnlySigpipe();
    const timespec no_wait{};
    sigtimedwait(&sigpipe, nullptr, &no_wait);
  }
  pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
}

}  // namespace neuroshard
