// A fixed group of threads that share out small jobs again and again.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace neuroshard {

// For one caller at a time. Job i runs on thread i modulo their number, the caller's thread being
// the first; jobs must not depend on which thread that is.
class WorkerTeam {
 public:
  // At least 1. Where the system has no thread left, the team is smaller.
  explicit WorkerTeam(int threads);
  ~WorkerTeam();
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Returns when job(0) .. job(count - 1) are done. Jobs must not throw.
  void Run(int count, const std::function<void(int)>& job);

 private:
  void Serve(int member);
  void RunShare(int member);

  const std::function<void(int)>* job_ = nullptr;
  int count_ = 0;
  int members_ = 1;
  std::atomic<std::uint32_t> round_{0};  // odd: no further round comes
  std::atomic<std::uint32_t> busy_{0};
  std::vector<std::thread> threads_;
};

}  // namespace neuroshard
