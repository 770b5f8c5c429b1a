#include "kernels/gloo/background_threads.h"

#include <pthread.h>

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

}  // namespace neuroshard
