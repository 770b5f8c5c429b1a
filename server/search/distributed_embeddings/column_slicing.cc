#include "server/search/distributed_embeddings/column_slicing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <queue>

namespace neuroshard {
namespace {

std::optional<double> Positive(std::optional<std::int64_t> threshold) {
  if (!threshold.has_value() || *threshold <= 0) return std::nullopt;
  return static_cast<double>(*threshold);
}

std::optional<double> AutomaticThreshold(std::span<const TableExtent> tables, int num_ranks) {
  const std::size_t ranks = static_cast<std::size_t>(num_ranks);
  if (tables.empty() || tables.size() >= ranks) return std::nullopt;
  std::priority_queue<double> sizes;
  for (const TableExtent& table : tables) sizes.push(table.elements());
  double threshold = 0;
  while (sizes.size() < ranks) {
    const double largest = sizes.top();
    sizes.pop();
    threshold = largest - 1;
    sizes.push(std::floor(largest / 2));
    sizes.push(std::floor(largest / 2));
  }
  return threshold;
}

}  // namespace

SlicingGroup SlicingGroupOf(const TableExtent& table, const DistributedEmbeddingsOptions& options,
                            int num_ranks) {
  if (num_ranks == 1) return SlicingGroup::kTableSliced;
  const auto replicate = Positive(options.data_parallel_threshold_elements);
  if (replicate && table.elements() <= *replicate) return SlicingGroup::kReplicated;
  const auto cut_rows = Positive(options.row_slice_threshold_elements);
  if (cut_rows && table.elements() >= *cut_rows) return SlicingGroup::kRowSliced;
  return SlicingGroup::kTableSliced;
}

std::vector<std::vector<std::int64_t>> SliceColumns(std::span<const TableExtent> tables,
                                                    std::optional<std::int64_t> threshold_elements,
                                                    int num_ranks, std::int64_t granule) {
  std::optional<double> threshold = Positive(threshold_elements);
  if (!threshold) threshold = AutomaticThreshold(tables, num_ranks);
  std::vector<std::vector<std::int64_t>> widths;
  widths.reserve(tables.size());
  for (const TableExtent& table : tables) {
    const std::int64_t granules = (table.cols + granule - 1) / granule;
    const std::int64_t most = std::min<std::int64_t>(num_ranks, granules);
    std::int64_t slices = 1;
    if (threshold) {
      for (double size = table.elements(); size > *threshold && slices < most; size /= 2) {
        slices *= 2;
      }
    }
    slices = std::min(slices, most);
    std::vector<std::int64_t>& of_table = widths.emplace_back();
    for (std::int64_t s = 0; s < slices; ++s) {
      of_table.push_back((granules / slices + (s < granules % slices ? 1 : 0)) * granule);
    }
    of_table.back() -= granules * granule - table.cols;
  }
  return widths;
}

}  // namespace neuroshard
