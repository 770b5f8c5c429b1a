#include "worker/measure/exchange_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/violations.h"

namespace neuroshard {

namespace {

// Checks the ids that a group of so many ranks distributes.
void CheckInputDist(const InputDistSample& input, std::size_t ranks, Violations& violations) {
  const auto check = [&](const char* field, std::size_t entries) {
    if (entries == ranks) return;
    violations.Add(fmt::format("input_distribution.{}", field),
                   "must have one entry for each of the group's {} ranks, got {}", ranks, entries);
  };
  check("whole_features", input.whole_features.size());
  check("whole_ids", input.whole_ids.size());
}

// Its batch, what it sends, what it receives and what it makes of that.
double InputDistBytes(const CommSample& sample, std::size_t rank) {
  const InputDistSample& input = *sample.input_dist;
  const auto ranks = static_cast<double>(sample.dim_sums.size());
  const double own_samples = static_cast<double>(sample.batch_size) / ranks;
  const double batch = static_cast<double>(sample.batch_size);
  const auto cut_features = static_cast<double>(input.cut_features);
  double features = cut_features;
  double ids = input.cut_ids;
  for (std::size_t r = 0; r < input.whole_features.size(); ++r) {
    features += static_cast<double>(input.whole_features[r]);
    ids += input.whole_ids[r];
  }
  const double came_features = static_cast<double>(input.whole_features[rank]) + cut_features;
  const double came_ids = input.whole_ids[rank] + input.cut_ids / ranks;
  constexpr double kLengthBytes = 8;
  const double id_bytes = input.weighted ? 12 : 8;
  return id_bytes * (3 * own_samples * ids + 2 * batch * came_ids) +
         kLengthBytes *
             (2 * own_samples * features + 2 * batch * cut_features + 3 * batch * came_features);
}

}  // namespace

Status CheckCommSample(const CommSample& sample, int world_size,
                       std::chrono::milliseconds timeout) {
  Violations violations;
  const auto ranks = static_cast<std::size_t>(world_size);
  if (sample.dim_sums.size() != ranks) {
    violations.Add("dim_sums", "must have one entry for each of the group's {} ranks, got {}",
                   world_size, sample.dim_sums.size());
  }
  const bool uneven = std::ranges::any_of(sample.dim_sums,
                                          [&](auto dim) { return dim != sample.dim_sums.front(); });
  if (uneven && sample.collective != Collective::kAllToAll) {
    violations.Add("dim_sums", "must be the same on every rank for {}", ToText(sample.collective));
  }
  const std::vector<double>& offsets = sample.start_offsets_ms;
  if (!offsets.empty() && offsets.size() != ranks) {
    violations.Add("start_offsets_ms",
                   "must be empty or have one entry for each of the group's {} ranks, got {}",
                   world_size, offsets.size());
  }
  if (!offsets.empty()) {
    const auto [first, last] = std::minmax_element(offsets.begin(), offsets.end());
    if (*last - *first >= static_cast<double>(timeout.count())) {
      violations.Add(fmt::format("start_offsets_ms[{}]", last - offsets.begin()),
                     "must be less than the group's timeout of {} ms after the first, got {} ms",
                     timeout.count(), *last - *first);
    }
  }
  if (sample.batch_size < 1 || sample.batch_size % world_size != 0) {
    violations.Add("batch_size", "must be a positive multiple of the group's {} ranks, got {}",
                   world_size, sample.batch_size);
  }
  if (sample.input_dist) CheckInputDist(*sample.input_dist, ranks, violations);
  return violations.ToStatus();
}

double TotalExchangeBytes(const CommSample& sample, int rank) {
  if (sample.input_dist) return InputDistBytes(sample, static_cast<std::size_t>(rank));
  const auto world_size = static_cast<double>(sample.dim_sums.size());
  const auto own_columns = static_cast<double>(sample.dim_sums[rank]);
  // Columns of one rank's share of the batch.
  double columns = own_columns * world_size;
  switch (sample.collective) {
    case Collective::kAllToAll:
      for (const std::int64_t dim_sum : sample.dim_sums) columns += static_cast<double>(dim_sum);
      break;
    case Collective::kAllGather:
      columns += own_columns;
      break;
    case Collective::kReduceScatter:  // partial sums besides
    case Collective::kAllReduce:
      columns *= 2;
      break;
  }
  // What is cast is there besides.
  const double element_bytes =
      static_cast<double>(sample.element_bytes) + (sample.casts() ? sizeof(float) : 0);
  return static_cast<double>(sample.batch_size) / world_size * columns * element_bytes;
}

Exchange ExchangeOf(const CommSample& sample, int rank) {
  const auto world_size = static_cast<std::int64_t>(sample.dim_sums.size());
  const std::int64_t bytes_per_column = sample.batch_size / world_size * sample.element_bytes;
  if (sample.collective != Collective::kAllToAll) {
    return {.collective = sample.collective,
            .block_bytes = bytes_per_column * sample.dim_sums.front()};
  }
  Exchange exchange;
  for (const std::int64_t dim_sum : sample.dim_sums) {
    exchange.send_bytes.push_back(bytes_per_column * sample.dim_sums[rank]);
    exchange.receive_bytes.push_back(bytes_per_column * dim_sum);
  }
  if (sample.direction == CommDirection::kBackward) {
    std::swap(exchange.send_bytes, exchange.receive_bytes);
  }
  return exchange;
}

}  // namespace neuroshard
