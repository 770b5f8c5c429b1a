// Assignment of blocks to tables in a table-batched launch: every table gets as many blocks in a
// row as it needs, so work is balanced over tables whatever their sizes are.
#pragma once

#include <cstdint>

#include "kernels/cuda/numbers.h"

namespace neuroshard::cuda {

// A table-batched launch: table t has the blocks [first_block[t], first_block[t + 1]).
template <typename Table>
struct Batched {
  const Table* tables = nullptr;
  const std::int32_t* first_block = nullptr;
  int num_tables = 0;
  std::int64_t blocks = 0;  // of all tables

  bool empty() const { return blocks == 0; }
};

// A block of a launch: the table that it works for, and its number there.
struct TableBlock {
  int table;
  std::int64_t block;  // among the table's own
};

// first_block[t] is table t's first one, first_block[tables] their number; block is below it.
// Tables without blocks are skipped.
NS_DEVICE_CODE TableBlock FindTable(const std::int32_t* first_block, int tables,
                                    std::int64_t block) {
  int low = 0, high = tables - 1;  // the last table that starts at or before the block
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (first_block[middle] <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return {low, block - first_block[low]};
}

}  // namespace neuroshard::cuda
