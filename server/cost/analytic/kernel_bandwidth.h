// TorchRec's bandwidth of an embedding kernel.
#pragma once

#include "common/domain/vocabulary.h"

namespace neuroshard {

// Bandwidths of the memories that a kernel may read.
struct MemoryBandwidths {
  double device_bytes_per_ms = 0;          // device memory
  double host_to_device_bytes_per_ms = 0;  // device to host link, for rows in host memory
  double ssd_bytes_per_ms = 0;
};

// Returns bytes per ms (kernel_bw_lookup of TorchRec 1.9.2, device "cuda"). Under kFusedUvmCaching
// `cached_share` of the rows are in device memory, which is as fast as kFused where rows are
// `prefetched`; other kernels ignore both: kKeyValue reads all of its rows from the SSD, whatever
// its cache holds. TorchRec has no kOffload; the lookups of that kernel are done by the host, and
// its vectors are in device memory.
double KernelBandwidth(ComputeKernel kernel, const MemoryBandwidths& memory, double cached_share,
                       bool prefetched);

}  // namespace neuroshard
