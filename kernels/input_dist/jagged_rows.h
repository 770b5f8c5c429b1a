// Rows of bags of ids, as TorchRec's KeyedJaggedTensor has them: a row is a feature, and every row
// has as many bags. `lengths` are the ids of each bag, row after row; ids and weights follow in the
// same order. Permuting rows is permute_2D_sparse_data of FBGEMM.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace neuroshard {

// Where the values of each row begin, and behind the last one where they end. num_bags > 0 divides
// the number of lengths. O(lengths).
std::vector<std::int64_t> RowBegins(std::span<const std::int64_t> lengths, std::int64_t num_bags);

// Rows in the given order: out row i is row order[i]. `out` has as many lengths as these rows.
void PermuteLengths(std::span<const std::int64_t> lengths, std::int64_t num_bags,
                    std::span<const std::size_t> order, std::span<std::int64_t> out);

// The same of values, `begins` being RowBegins of their lengths. Returns how many were written.
template <typename T>
std::int64_t PermuteValues(std::span<const T> values, std::span<const std::int64_t> begins,
                           std::span<const std::size_t> order, std::span<T> out) {
  T* to = out.data();
  for (const std::size_t row : order) {
    to = std::copy(values.data() + begins[row], values.data() + begins[row + 1], to);
  }
  return to - out.data();
}

}  // namespace neuroshard
