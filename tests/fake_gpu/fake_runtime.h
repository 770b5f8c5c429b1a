// A fake of the CUDA runtime, for tests on machines without a GPU: the calls that the host's code
// makes, with memory of the host for devices' memory and a thread for every stream. What is run on
// it is never a measurement of a GPU: its devices are called kFakeName.
//
// Of the orders that real streams allow, three extremes are mixed at random, item by item: at once,
// before the call that enqueues it returns; as soon as the stream gets to it; and late, when
// somebody waits for a stream or an event (or after kLongestDelay, since a device gets there by
// itself). So what a missing wait lets go wrong does go wrong. Which items are which is a function
// of the seed, the stream's number and the item's; when exactly they run is the host's business.
//
// The environment says what there is and what goes wrong, in each process that uses it:
//   FAKE_GPUS=N              devices, 1 unless stated
//   FAKE_GPU_MEMORY=BYTES    of each, 4 GiB unless stated
//   FAKE_GPU_SEED=N          of the order
//   FAKE_GPU_FAIL=CALL:N:WHAT[@DEVICE],...   the N-th call (from 1) of the runtime or launch of a
//       kernel with that name in a process fails: WHAT is the number of a CUDA error (2: out of
//       memory), `lost` (the device fails from then on) or `hang` (the call, or the kernel, never
//       ends; NcclKernel: until it is aborted); or it is `late`: begins when another device of the
//       process waits. N is 0 for all calls
//   FAKE_GPU_LAUNCHED=FILE   gets the names of all kernels that were launched, a line each, as they
//       are launched the first time
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace neuroshard::fake_gpu {

inline constexpr std::chrono::milliseconds kLongestDelay{2};

inline constexpr char kFakeName[] = "Fake GPU that runs on the CPU";

// Enqueues what a kernel of that name does. `hung`: what it does instead where it is told to hang;
// not to end unless stated.
cudaError_t Launch(const std::string& kernel, cudaStream_t stream, std::function<void()> body,
                   std::function<void()> hung = nullptr);

// What a library takes of the calling thread's device, without waiting for anything: false where
// there is not as much. Negative: gives back.
bool TakeMemory(std::int64_t bytes);

// Of the host, that cudaHostAlloc gave.
std::int64_t PinnedBytes();

// Whether [begin, begin + bytes) lies in one allocation of a device.
bool IsDeviceMemory(const void* begin, std::int64_t bytes);

// What a kernel that waits does between two looks: eight that only yield would take all of two
// cores from the host's threads, and from the kernel that they wait for.
inline void LetOthersRun() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

// All later calls for the stream's device fail with the error, as after an illegal address.
void Break(cudaStream_t stream, cudaError_t error);

}  // namespace neuroshard::fake_gpu
