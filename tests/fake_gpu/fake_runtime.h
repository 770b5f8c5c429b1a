// A fake of the CUDA runtime, for tests on machines without a GPU: the calls that the host's code
// makes, with memory of the host for devices' memory and a thread for every stream, so that streams
// run beside each other and the host as they may on a device. What is run on it is never a
// measurement of a GPU: its devices are called kFakeName.
//
// The environment says what there is and what goes wrong, in each process that uses it:
//   FAKE_GPUS=N              devices, 1 unless stated
//   FAKE_GPU_MEMORY=BYTES    of each, 4 GiB unless stated
//   FAKE_GPU_SEED=N          of the pauses of streams between what they run
//   FAKE_GPU_FAIL=CALL:N:WHAT[@DEVICE],...   the N-th call (from 1) of the runtime or launch of a
//       kernel with that name in a process fails: WHAT is the number of a CUDA error, `lost` (the
//       device fails from then on) or `hang` (the call, or the kernel, never ends; NcclKernel: until
//       it is aborted); or it is `late`: begins when another device of the process waits. N is 0
//       for all calls
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

namespace neuroshard::fake_gpu {

inline constexpr char kFakeName[] = "Fake GPU that runs on the CPU";

// Enqueues what a kernel of that name does. `hung`: what it does instead where it is told to hang;
// not to end unless stated.
cudaError_t Launch(const char* kernel, cudaStream_t stream, std::function<void()> body,
                   std::function<void()> hung = nullptr);

// Whether [begin, begin + bytes) lies in one allocation of a device.
bool IsDeviceMemory(const void* begin, std::int64_t bytes);

// What a kernel that waits does between two looks: eight that only yield would take all of two
// cores from the host's threads, and from the kernel that they wait for.
inline void LetOthersRun() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

// All later calls for the stream's device fail with the error, as after an illegal address.
void Break(cudaStream_t stream, cudaError_t error);

}  // namespace neuroshard::fake_gpu
