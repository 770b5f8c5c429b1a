// SIMT emulator, for tests: runs the threads of a kernel launch as fibers on the CPU, so that lanes
// meet in shuffles and __syncwarp as they do on a GPU. Source files of kernels are compiled for it
// unchanged (emulated_source.py rewrites their launches).
//
// Blocks run one after the other, blocks and threads in random order; a thread runs until it waits
// for others or ends. What a GPU would leave undefined ends the process and names block and thread:
//   - a lane that is not in the mask it waits with, or whose partner is not
//   - lanes that meet at different instructions or with different masks
//   - a wait for a lane that has ended, and any other deadlock
//   - memory outside of what EmulatedGpu handed out (its guard pages)
// Not shown: accesses beyond an array that stay within its allocation, races between blocks within
// one instruction, asynchrony, what nvcc makes of it (tests/machine_code).
// One thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

namespace neuroshard::cuda::simt {

// threadIdx, blockIdx: only x is used by our kernels.
struct Index {
  unsigned x = 0;
};
extern Index thread_index, block_index;

// Order of blocks and threads of the launches that follow.
void SetSeed(std::uint64_t seed);

// Runs `thread` for every block and thread, each with its indices; returns when all have ended.
void Launch(unsigned blocks, unsigned threads, const std::function<void()>& thread);

// Waits for the lanes of the mask, all of one warp, and gives `value` of the lane `lane ^
// distance`.
std::uint32_t ShuffleXor(unsigned mask, std::uint32_t value, int distance);
void SyncWarp(unsigned mask);

// Nanoseconds of a clock that goes on.
std::uint64_t GlobalTimer();

// Whether fault `number` (from 1) that emulated_source.py put into the source is to happen.
bool Fault(int number);
void SetFault(int number);

// Where the running thread is: "block 3, thread 17"; for what ends the process.
const char* Where();

}  // namespace neuroshard::cuda::simt
