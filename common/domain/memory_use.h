// Bytes that shards take on a device (DESIGN section 8 of the project: weights, optimizer state,
// ids, activations, reserve).
#pragma once

#include <cstdint>

#include "common/domain/plan_request.h"

namespace neuroshard {

struct MemoryUse {
  std::int64_t weights_bytes = 0;
  std::int64_t optimizer_bytes = 0;
  std::int64_t input_bytes = 0;
  std::int64_t output_bytes = 0;
  std::int64_t reserve_bytes = 0;

  std::int64_t total_bytes() const {
    return weights_bytes + optimizer_bytes + input_bytes + output_bytes + reserve_bytes;
  }
  // Saturates every kind at 2^60.
  MemoryUse& operator+=(const MemoryUse& other);
  bool operator==(const MemoryUse&) const = default;
};

// One shard of `rows` x `cols` of `table`, under the request's memory rule. Every kind saturates at
// 2^52 bytes, more than any device has, instead of overflowing. weights: rows x cols x dtype.
// optimizer: SGD 0, Adagrad 1x weights, row-wise Adagrad 4 B a row, Adam 2x weights. input: 8 B an
// id (4 B more if weighted) of the global batch; output: global batch x cols x 4 B. kWeightsOnly:
// weights alone.
MemoryUse ShardMemory(const PlanRequest& request, const Table& table, std::int64_t rows,
                      std::int64_t cols);

// Kept free on a device of `capacity_bytes`.
std::int64_t ReserveBytes(const MemoryModel& memory, std::int64_t capacity_bytes);

}  // namespace neuroshard
