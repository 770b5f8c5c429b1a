// Interface through which a search, which knows no threads, uses several cores.
#pragma once

#include <functional>

namespace neuroshard {

// Runs jobs that share nothing; the threads that they run on change no result. Implementations are
// thread-safe.
class JobRunner {
 public:
  virtual ~JobRunner() = default;
  // Calls job(0) to job(count - 1), each once and possibly concurrently, and returns when all have
  // ended. job(0) runs on the calling thread.
  virtual void Run(int count, const std::function<void(int)>& job) const = 0;
};

// Runs jobs one after the other.
class SerialRunner final : public JobRunner {
 public:
  void Run(int count, const std::function<void(int)>& job) const override {
    for (int i = 0; i < count; ++i) job(i);
  }
};

}  // namespace neuroshard
