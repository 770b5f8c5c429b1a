// Independent calls, a few at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace neuroshard {

// Runs task(0) .. task(count - 1), at most 4 at a time, and returns when all have ended.
template <typename Task>
void RunSideBySide(std::size_t count, const Task& task) {
  constexpr std::size_t kMaxConcurrentCalls = 4;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) task(i);
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t < std::min(kMaxConcurrentCalls, count); ++t) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace neuroshard
