// Job runner: more than one core for a search that knows of no threads.
#pragma once

#include <functional>

namespace neuroshard {

// Runs jobs that share nothing; which threads they run on changes no result.
class JobRunner {
 public:
  virtual ~JobRunner() = default;
  // Calls job(0) to job(count - 1), each once, and returns when all have. They may run at the same
  // time; job(0) runs on the calling thread.
  virtual void Run(int count, const std::function<void(int)>& job) const = 0;
};

// One after the other.
class SerialRunner final : public JobRunner {
 public:
  void Run(int count, const std::function<void(int)>& job) const override {
    for (int i = 0; i < count; ++i) job(i);
  }
};

}  // namespace neuroshard
