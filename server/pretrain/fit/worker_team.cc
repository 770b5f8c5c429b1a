#include "server/pretrain/fit/worker_team.h"

#include <system_error>

namespace neuroshard {
namespace {

// A job of training takes about a millisecond and the next one comes at once; asking the system to
// sleep and to be woken would cost a tenth of that. After this many looks it is asked.
constexpr int kLooks = 4000;

// Waits until `value` is no longer `old`.
void AwaitChange(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int look = 0; look < kLooks; ++look) {
    if (value.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

WorkerTeam::WorkerTeam(int threads) {
  try {
    for (int member = 1; member < threads; ++member) {
      threads_.emplace_back([this, member] { Serve(member); });
    }
  } catch (const std::system_error&) {
    // Fewer threads do the same jobs.
  }
  members_ = size();
}

WorkerTeam::~WorkerTeam() {
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerTeam::Run(int count, const std::function<void(int)>& job) {
  job_ = &job;
  count_ = count;
  busy_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
  if (!threads_.empty()) {
    round_.fetch_add(2, std::memory_order_release);
    round_.notify_all();
  }
  RunShare(0);
  for (;;) {
    const std::uint32_t busy = busy_.load(std::memory_order_acquire);
    if (busy == 0) return;
    AwaitChange(busy_, busy);
  }
}

void WorkerTeam::RunShare(int member) {
  for (int i = member; i < count_; i += members_) (*job_)(i);
}

void WorkerTeam::Serve(int member) {
  std::uint32_t seen = 0;
  for (;;) {
    AwaitChange(round_, seen);
    const std::uint32_t now = round_.load(std::memory_order_acquire);
    if (now == seen) continue;
    if (now % 2 == 1) return;
    seen = now;
    RunShare(member);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

}  // namespace neuroshard
