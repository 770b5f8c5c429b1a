// Runs the jobs of a search on threads of their own.
#pragma once

#include <functional>
#include <system_error>
#include <thread>
#include <vector>

#include "server/search/core/job_runner.h"

namespace neuroshard {

// Starts a thread per job. Where the system has no thread left, a job runs on the calling one.
// Stateless and thread-safe.
class ThreadRunner final : public JobRunner {
 public:
  void Run(int count, const std::function<void(int)>& job) const override {
    std::vector<std::jthread> threads;
    int started = 1;
    try {
      for (; started < count; ++started) {
        threads.emplace_back([&job, i = started] { job(i); });
      }
    } catch (const std::system_error&) {
      for (int i = started; i < count; ++i) job(i);
    }
    if (count > 0) job(0);
  }
};

}  // namespace neuroshard
