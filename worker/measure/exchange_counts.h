// Bytes that each rank sends and receives in an exchange of pooled embeddings.
#pragma once

#include <chrono>
#include <cstdint>

#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "kernels/api/collective.h"

namespace neuroshard {

// Faults of a sample that only a group of `world_size` ranks with this timeout can tell, field
// paths relative to the sample: number of dim_sums and of start offsets, dim_sums that differ where
// the collective treats all ranks alike, batch size not a multiple, an offset spread that would let
// the other ranks run into the timeout.
Status CheckCommSample(const CommSample& sample, int world_size, std::chrono::milliseconds timeout);

// Bytes of `rank`'s buffers together, those of partial sums, of values that are cast and of
// distributed ids included, as a real number since a hostile sample's exceed any integer.
double TotalExchangeBytes(const CommSample& sample, int rank);

// The rank's part in the sample's collective. Forward all-to-all: rank r sends its dim_sums[r]
// columns of each rank's share of the batch (batch_size / world_size samples) to that rank, and
// receives dim_sums[p] columns of its own share from every p. Backward is the reverse. The block of
// the other collectives is one rank's share of the batch in the columns that all ranks have. The
// sample passed CheckCommSample, and TotalExchangeBytes fits an int64.
Exchange ExchangeOf(const CommSample& sample, int rank);

}  // namespace neuroshard
