// Sizes of exchanges, and the checks that every communicator makes before it touches its buffers;
// pure.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "kernels/api/collective.h"

namespace neuroshard {

// Bytes that one rank sends and receives in all.
struct ExchangeBytes {
  std::int64_t send = 0;
  std::int64_t receive = 0;
};

// INVALID_ARGUMENT unless both sides have one entry a rank, none negative, with sums that can be
// counted, and the rank sends itself what it receives from itself.
StatusOr<ExchangeBytes> BytesOfCounts(const AllToAllCounts& counts, int rank, int world_size);

// INVALID_ARGUMENT: not a collective of blocks, or blocks that are negative, too large to count or,
// where they are summed, not of whole numbers.
StatusOr<ExchangeBytes> BytesOfBlocks(Collective collective, std::int64_t block_bytes,
                                      int world_size);

// What is divided by the time of an exchange for its bus bandwidth as nccl-tests defines it: the
// larger of a rank's two buffers, its own part included, less what a rank has itself; for an
// all-reduce twice that. Of the rank with the most, the bandwidth of the group.
double BusBytes(Collective collective, const ExchangeBytes& bytes, int world_size);

// Where each peer's part begins in a buffer without gaps.
std::vector<std::int64_t> PartOffsets(const std::vector<std::int64_t>& bytes);

}  // namespace neuroshard
