// Bus bandwidths of collectives, for benchmarks.
#pragma once

#include <algorithm>

#include "kernels/api/collective.h"

namespace neuroshard {

// What is divided by the time of an exchange for its bus bandwidth as nccl-tests defines it: the
// larger of a rank's two buffers, its own part included, less what a rank has itself; for an
// all-reduce twice that. Of the rank with the most, the bandwidth of the group.
inline double BusBytes(Collective collective, const ExchangeBytes& bytes, int world_size) {
  const double others = static_cast<double>(world_size - 1) / world_size;
  const double passes = collective == Collective::kAllReduce ? 2 : 1;
  return static_cast<double>(std::max(bytes.send, bytes.receive)) * others * passes;
}

}  // namespace neuroshard
