// TorchRec's bandwidth of an embedding kernel.
#pragma once

namespace neuroshard {

// TorchRec's kernels on CUDA that its planner uses unasked. Plans know the first two; the others,
// with tables in host memory, are here because TorchRec's tests of the formulas use them.
enum class TorchRecKernel { kDense, kFused, kFusedUvm, kFusedUvmCaching };

// The memory bandwidths that a kernel's reading depends on, in bytes per ms.
struct MemoryBandwidths {
  double device_bytes_per_ms = 0;          // device memory
  double host_to_device_bytes_per_ms = 0;  // kFusedUvm and kFusedUvmCaching only
};

// Bytes per ms (kernel_bw_lookup of TorchRec 1.9.2, device "cuda"). `cached_share` of the rows are in
// device memory under kFusedUvmCaching; others do not look at it.
double KernelBandwidth(TorchRecKernel kernel, const MemoryBandwidths& memory,
                       double cached_share = 0.2);

}  // namespace neuroshard
