// Runs the jobs of a search on threads of their own.
#pragma once

#include <functional>

#include "server/search/core/job_runner.h"

namespace neuroshard {

// Starts a thread per job. Where the system has no thread left, a job runs on the calling one.
// Stateless and thread-safe.
class ThreadRunner final : public JobRunner {
 public:
  void Run(int count, const std::function<void(int)>& job) const override;
};

}  // namespace neuroshard
