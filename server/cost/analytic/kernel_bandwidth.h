// TorchRec's bandwidth of an embedding kernel.
#pragma once

#include "common/domain/vocabulary.h"

namespace neuroshard {

// The memory bandwidths that a kernel's reading depends on, in bytes per ms.
struct MemoryBandwidths {
  double device_bytes_per_ms = 0;          // device memory
  double host_to_device_bytes_per_ms = 0;  // of rows in host memory
  double ssd_bytes_per_ms = 0;
};

// Bytes per ms (kernel_bw_lookup of TorchRec 1.9.2, device "cuda"). `cached_share` of the rows
// are in device memory under kFusedUvmCaching, which is as fast as kFused where rows are
// `prefetched`; others look at neither: kKeyValue reads all of its rows from the SSD, whatever its
// cache holds. TorchRec has no kOffload, whose lookups are no device's;
// its vectors are in device memory.
double KernelBandwidth(ComputeKernel kernel, const MemoryBandwidths& memory, double cached_share,
                       bool prefetched);

}  // namespace neuroshard
