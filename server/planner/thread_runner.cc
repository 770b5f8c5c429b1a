#include "server/planner/thread_runner.h"

#include <system_error>
#include <thread>
#include <vector>

namespace neuroshard {

void ThreadRunner::Run(int count, const std::function<void(int)>& job) const {
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

}  // namespace neuroshard
