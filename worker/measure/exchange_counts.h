// How many bytes each rank sends to each other in a model-parallel embedding exchange.
#pragma once

#include <chrono>
#include <cstdint>

#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "kernels/api/collective.h"

namespace neuroshard {

// Faults of a sample that only a group of `world_size` ranks with this timeout can tell, field
// paths relative to the sample: number of dim_sums and of start offsets, batch size not a multiple,
// an offset spread that would let the other ranks run into the timeout.
Status CheckCommSample(const CommSample& sample, int world_size, std::chrono::milliseconds timeout);

// Bytes of `rank`'s send and receive buffers together, as a real number since a hostile sample's
// exceed any integer.
double ExchangeBytes(const CommSample& sample, int rank);

// Forward: rank r sends its dim_sums[r] columns of each rank's share of the batch (batch_size /
// world_size samples) to that rank, and receives dim_sums[p] columns of its own share from every p.
// Backward is the reverse. The sample passed CheckCommSample, and ExchangeBytes fits an int64.
AllToAllCounts ExchangeCounts(const CommSample& sample, int rank);

}  // namespace neuroshard
