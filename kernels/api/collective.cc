#include "kernels/api/collective.h"

#include <limits>
#include <numeric>

namespace neuroshard {
namespace {

StatusOr<std::int64_t> SumOf(const std::vector<std::int64_t>& bytes, const char* name,
                             int world_size) {
  if (bytes.size() != static_cast<std::size_t>(world_size)) {
    return InvalidArgument("{}: must have one entry a rank ({}), got {}", name, world_size,
                           bytes.size());
  }
  std::int64_t sum = 0;
  for (const std::int64_t part : bytes) {
    if (part < 0 || part > std::numeric_limits<std::int64_t>::max() - sum) {
      return InvalidArgument("{}: {} is negative or makes the sum overflow", name, part);
    }
    sum += part;
  }
  return sum;
}

StatusOr<ExchangeBytes> BytesOfBlocks(const Exchange& exchange, int world_size) {
  const Collective collective = exchange.collective;
  const std::int64_t block_bytes = exchange.block_bytes;
  if (block_bytes < 0 || block_bytes > std::numeric_limits<std::int64_t>::max() / 4 / world_size) {
    return InvalidArgument("block_bytes: {} is negative or makes the sum overflow", block_bytes);
  }
  if (collective != Collective::kAllGather &&
      block_bytes % static_cast<std::int64_t>(sizeof(float)) != 0) {
    return InvalidArgument("block_bytes: must be of whole fp32 numbers for {}, got {}",
                           ToText(collective), block_bytes);
  }
  const std::int64_t all = block_bytes * world_size;
  return ExchangeBytes{collective == Collective::kAllGather ? block_bytes : all,
                       collective == Collective::kReduceScatter ? block_bytes : all};
}

}  // namespace

Status CheckSpec(const CommunicatorSpec& spec) {
  if (spec.world_size < 1 || spec.rank < 0 || spec.rank >= spec.world_size) {
    return InvalidArgument("rank: must be in [0, {}), got {}", spec.world_size, spec.rank);
  }
  if (spec.timeout.count() <= 0) {
    return InvalidArgument("timeout: must be positive, got {} ms", spec.timeout.count());
  }
  return absl::OkStatus();
}

StatusOr<ExchangeBytes> BytesOf(const Exchange& exchange, int rank, int world_size) {
  if (exchange.collective != Collective::kAllToAll) return BytesOfBlocks(exchange, world_size);
  ExchangeBytes bytes;
  NS_ASSIGN_OR_RETURN(bytes.send, SumOf(exchange.send_bytes, "send_bytes", world_size));
  NS_ASSIGN_OR_RETURN(bytes.receive, SumOf(exchange.receive_bytes, "receive_bytes", world_size));
  if (exchange.send_bytes[rank] != exchange.receive_bytes[rank]) {
    return InvalidArgument("rank {} sends {} bytes to itself but receives {}", rank,
                           exchange.send_bytes[rank], exchange.receive_bytes[rank]);
  }
  return bytes;
}

std::vector<std::int64_t> PartOffsets(const std::vector<std::int64_t>& bytes) {
  std::vector<std::int64_t> offsets(bytes.size());
  std::exclusive_scan(bytes.begin(), bytes.end(), offsets.begin(), std::int64_t{0});
  return offsets;
}

}  // namespace neuroshard
