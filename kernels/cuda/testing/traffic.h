// Bytes that a pass over one table has to move at least, counted two ways; what bandwidths of the
// kernels are quoted in. Pure.
#pragma once

#include <cstdint>

namespace neuroshard::cuda {

// A table's batch, as far as its traffic depends on it.
struct TableTraffic {
  std::int64_t batch_size = 0;
  std::int64_t ids = 0;
  std::int64_t distinct_rows = 0;
  std::int64_t cols = 0;
  std::int64_t weight_bytes = 4;  // of one number
  std::int64_t scale_bytes = 0;   // 4 where an occurrence has a factor (weighted, mean), else 0
  std::int64_t state_bytes = 0;   // of a row; row-wise Adagrad: 4
  std::int64_t moment_bytes = 0;  // of a weight; Adam: 8
};

// Every occurrence reads its row from memory: right for ids that rarely repeat, FBGEMM's count.
constexpr std::int64_t NominalForwardBytes(const TableTraffic& t) {
  return t.ids * (t.cols * t.weight_bytes + 8 + t.scale_bytes) + t.batch_size * (t.cols * 4 + 8);
}

// Every distinct row is read from memory once and found in a cache afterwards.
constexpr std::int64_t DistinctForwardBytes(const TableTraffic& t) {
  return t.distinct_rows * t.cols * t.weight_bytes + t.ids * (8 + t.scale_bytes) +
         t.batch_size * (t.cols * 4 + 8);
}

// Every occurrence reads its gradient, every distinct row is read and written, its state too, in
// sectors of 32 bytes. Without the sort.
constexpr std::int64_t NominalBackwardBytes(const TableTraffic& t) {
  return t.ids * (t.cols * 4 + 8 + t.scale_bytes) +
         t.distinct_rows *
             (2 * t.cols * (t.weight_bytes + t.moment_bytes) + (t.state_bytes > 0 ? 64 : 0));
}

// The gradient of a sample is read once and found in a cache by the sample's other ids.
constexpr std::int64_t DistinctBackwardBytes(const TableTraffic& t) {
  return t.batch_size * t.cols * 4 + t.ids * (8 + t.scale_bytes) +
         t.distinct_rows *
             (2 * t.cols * (t.weight_bytes + t.moment_bytes) + (t.state_bytes > 0 ? 64 : 0));
}

// Making keys, sorting them by digits of eight bits (one counting pass over the keys, then every
// digit reads and writes everything), reading the result.
constexpr std::int64_t SortBytes(const TableTraffic& t, int key_bits) {
  const std::int64_t entry = 8 + t.scale_bytes, passes = (key_bits + 7) / 8;
  return t.ids * (8 + entry + 4 + 2 * passes * entry + entry);
}

}  // namespace neuroshard::cuda
