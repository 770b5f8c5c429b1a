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
//       device fails from then on) or `hang` (the call, or the kernel, never ends)
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

namespace neuroshard::fake_gpu {

inline constexpr char kFakeName[] = "Fake GPU that runs on the CPU";

// Enqueues what a kernel of that name does.
cudaError_t Launch(const char* kernel, cudaStream_t stream, std::function<void()> body);

// Whether [begin, begin + bytes) lies in one allocation of a device.
bool IsDeviceMemory(const void* begin, std::int64_t bytes);

// All later calls for the stream's device fail with the error, as after an illegal address.
void Break(cudaStream_t stream, cudaError_t error);

}  // namespace neuroshard::fake_gpu
