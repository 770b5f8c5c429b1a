#include "common/domain/memory_use.h"

#include <algorithm>
#include <cmath>

namespace neuroshard {
namespace {

// Above the largest device that a request can have (2^50), so that what saturates fits nowhere; far
// enough below the type's end that sums of many do not overflow.
constexpr double kSaturated = 0x1.0p52;
// Sums stop here, so that total_bytes() of the five kinds still fits.
constexpr std::int64_t kMaxSum = std::int64_t{1} << 60;

void AddSaturating(std::int64_t& sum, std::int64_t bytes) { sum = std::min(sum + bytes, kMaxSum); }

std::int64_t Saturate(double bytes) { return std::llround(std::min(std::ceil(bytes), kSaturated)); }

double OptimizerBytes(Optimizer optimizer, double weights_bytes, double rows) {
  switch (optimizer) {
    case Optimizer::kSgd:
      return 0;
    case Optimizer::kAdagrad:
      return weights_bytes;
    case Optimizer::kRowwiseAdagrad:
      return 4 * rows;
    case Optimizer::kAdam:
      return 2 * weights_bytes;
  }
  return 0;
}

}  // namespace

MemoryUse& MemoryUse::operator+=(const MemoryUse& other) {
  AddSaturating(weights_bytes, other.weights_bytes);
  AddSaturating(optimizer_bytes, other.optimizer_bytes);
  AddSaturating(input_bytes, other.input_bytes);
  AddSaturating(output_bytes, other.output_bytes);
  AddSaturating(reserve_bytes, other.reserve_bytes);
  return *this;
}

MemoryUse ShardMemory(const PlanRequest& request, const Table& table, std::int64_t rows,
                      std::int64_t cols) {
  const double r = static_cast<double>(rows);
  const double c = static_cast<double>(cols);
  const double batch = static_cast<double>(request.global_batch_size);
  const double weights = r * c * static_cast<double>(ElementBytes(table.weight_dtype));
  MemoryUse use;
  use.weights_bytes = Saturate(weights);
  if (request.memory.rule == MemoryRule::kWeightsOnly) return use;
  use.optimizer_bytes = Saturate(OptimizerBytes(request.optimizer, weights, r));
  use.input_bytes = Saturate(batch * table.pooling_factor * (table.weighted ? 12 : 8));
  use.output_bytes = Saturate(batch * c * 4);
  return use;
}

std::int64_t ReserveBytes(const MemoryModel& memory, std::int64_t capacity_bytes) {
  return Saturate(memory.reserve_fraction * static_cast<double>(capacity_bytes)) +
         memory.reserve_bytes;
}

}  // namespace neuroshard
