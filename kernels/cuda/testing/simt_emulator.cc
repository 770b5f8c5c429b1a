#include "kernels/cuda/testing/simt_emulator.h"

#include <ucontext.h>

#include <algorithm>
#include <chrono>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

#include "common/base/random.h"

namespace neuroshard::cuda::simt {

Index thread_index, block_index;

namespace {

constexpr int kWarpSize = 32;
constexpr std::size_t kStackBytes = 64 << 10;

enum class Wait { kNothing, kShuffle, kSyncWarp };

// Runs one thread of a block, then of the next one. It is left and entered by jumps, which,
// unlike swapcontext, make no system call.
struct Fiber {
  std::jmp_buf left_at;
  bool has_begun = false;
  std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(kStackBytes);
  bool ended = false;
  Wait waits = Wait::kNothing;
  unsigned mask = 0;
  int distance = 0;
  std::uint32_t value = 0;   // given to the shuffle
  std::uint32_t answer = 0;  // got from it
};

struct Emulator {
  std::vector<Fiber> fibers;  // more than the launch has, maybe
  unsigned threads = 0;
  std::jmp_buf scheduler;
  const std::function<void()>* body = nullptr;
  Random random{1};
};
Emulator& Emulated() {
  static Emulator emulator;
  return emulator;
}

[[noreturn]] void Fail(const char* what, unsigned mask) {
  std::fprintf(stderr, "simt: %s: %s (mask 0x%08x)\n", Where(), what, mask);
  std::abort();
}

// Back when the scheduler has let the fiber go on.
void Yield() {
  Emulator& emulator = Emulated();
  if (_setjmp(emulator.fibers[thread_index.x].left_at) == 0) _longjmp(emulator.scheduler, 1);
}

void RunFiber() {
  while (true) {
    (*Emulated().body)();
    Emulated().fibers[thread_index.x].ended = true;
    Yield();
  }
}

// Back when the fiber of this thread yields.
void Resume(unsigned thread) {
  Emulator& emulator = Emulated();
  Fiber& fiber = emulator.fibers[thread];
  thread_index.x = thread;
  if (_setjmp(emulator.scheduler) != 0) return;
  if (fiber.has_begun) _longjmp(fiber.left_at, 1);
  fiber.has_begun = true;
  ucontext_t begin{};
  getcontext(&begin);
  begin.uc_stack.ss_sp = fiber.stack.get();
  begin.uc_stack.ss_size = kStackBytes;
  makecontext(&begin, RunFiber, 0);
  setcontext(&begin);
}

// Lets the lanes of the running thread's mask go on once all of them have arrived.
void MeetIfAllArrived() {
  Emulator& emulator = Emulated();
  const unsigned warp = thread_index.x / kWarpSize * kWarpSize;
  const Fiber& last = emulator.fibers[thread_index.x];
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if ((last.mask >> lane & 1) == 0) continue;
    if (warp + lane >= emulator.threads) Fail("the mask has a lane beyond the block", last.mask);
    const Fiber& other = emulator.fibers[warp + lane];
    if (other.ended) Fail("waits for a lane that has ended", last.mask);
    if (other.waits == Wait::kNothing) return;
    if (other.waits != last.waits || other.mask != last.mask || other.distance != last.distance) {
      Fail("meets a lane that waits at another instruction or with another mask", last.mask);
    }
  }
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if ((last.mask >> lane & 1) == 0) continue;
    const unsigned partner = lane ^ static_cast<unsigned>(last.distance);
    if (partner >= kWarpSize || (last.mask >> partner & 1) == 0) {
      Fail("exchanges with a lane that is not in the mask", last.mask);
    }
    emulator.fibers[warp + lane].answer = emulator.fibers[warp + partner].value;
  }
  const unsigned mask = last.mask;
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if ((mask >> lane & 1) != 0) emulator.fibers[warp + lane].waits = Wait::kNothing;
  }
}

std::uint32_t Meet(Wait wait, unsigned mask, std::uint32_t value, int distance) {
  Fiber& fiber = Emulated().fibers[thread_index.x];
  if ((mask >> thread_index.x % kWarpSize & 1) == 0) Fail("is not in its own mask", mask);
  fiber.waits = wait;
  fiber.mask = mask;
  fiber.value = value;
  fiber.distance = distance;
  Yield();
  return fiber.answer;
}

void RunBlock() {
  Emulator& emulator = Emulated();
  std::vector<unsigned> runnable(emulator.threads);
  std::iota(runnable.begin(), runnable.end(), 0U);
  for (unsigned thread : runnable) {
    Fiber& fiber = emulator.fibers[thread];
    fiber.ended = false;
    fiber.waits = Wait::kNothing;
  }
  std::vector<unsigned> waiting;
  while (!runnable.empty()) {
    const std::size_t at = emulator.random.Below(runnable.size());
    const unsigned thread = runnable[at];
    runnable[at] = runnable.back();
    runnable.pop_back();
    Resume(thread);
    if (emulator.fibers[thread].ended) {
      // A lane that waits for this one would wait for ever; it says so as the one that waits.
      for (const unsigned other : waiting) {
        const Fiber& fiber = emulator.fibers[other];
        if (other / kWarpSize == thread / kWarpSize &&
            (fiber.mask >> thread % kWarpSize & 1) != 0) {
          thread_index.x = other;
          Fail("waits for a lane that has ended", fiber.mask);
        }
      }
      continue;
    }
    waiting.push_back(thread);
    MeetIfAllArrived();
    const auto go_on = std::partition(waiting.begin(), waiting.end(), [&](unsigned t) {
      return emulator.fibers[t].waits != Wait::kNothing;
    });
    runnable.insert(runnable.end(), go_on, waiting.end());
    waiting.erase(go_on, waiting.end());
  }
  if (!waiting.empty()) {
    thread_index.x = waiting.front();
    Fail("waits for ever: nobody else can go on", emulator.fibers[waiting.front()].mask);
  }
}

}  // namespace

void SetSeed(std::uint64_t seed) { Emulated().random = Random(seed); }

void Launch(unsigned blocks, unsigned threads, const std::function<void()>& thread) {
  Emulator& emulator = Emulated();
  if (emulator.fibers.size() < threads) emulator.fibers.resize(threads);
  emulator.threads = threads;
  emulator.body = &thread;
  std::vector<unsigned> order(blocks);
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[emulator.random.Below(i)]);
  }
  for (const unsigned block : order) {
    block_index.x = block;
    RunBlock();
  }
}

std::uint32_t ShuffleXor(unsigned mask, std::uint32_t value, int distance) {
  return Meet(Wait::kShuffle, mask, value, distance);
}

void SyncWarp(unsigned mask) { Meet(Wait::kSyncWarp, mask, 0, 0); }

std::uint64_t GlobalTimer() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

namespace {
int active_fault = 0;
}
bool Fault(int number) { return number == active_fault; }
void SetFault(int number) { active_fault = number; }

const char* Where() {
  static char text[64];
  std::snprintf(text, sizeof text, "block %u, thread %u", block_index.x, thread_index.x);
  return text;
}

}  // namespace neuroshard::cuda::simt
