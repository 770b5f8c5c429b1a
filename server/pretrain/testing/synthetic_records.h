// Measurements with a known cost, for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/store/profile_store.h"

namespace neuroshard {

inline MeasurementEnvironment SyntheticEnvironment() {
  MeasurementEnvironment environment;
  environment.worker_version = "0.1.0";
  environment.git_commit = "0123abc";
  environment.hostname = "host-a";
  environment.device = "Some CPU";
  environment.backend = "neuroshard-cpu";
  environment.measured_at_unix_ms = 1'790'000'000'000;
  return environment;
}

// Returns sums over 1..8 tables of a cost that grows with dim, pooling and rows; 40% forward, 60%
// backward.
inline std::vector<ComputeRecord> SyntheticComputeRecords(int count, std::uint64_t seed = 1) {
  Random random(seed);
  std::vector<ComputeRecord> records;
  for (int i = 0; i < count; ++i) {
    ComputeRecord record;
    record.environment = SyntheticEnvironment();
    record.sample.sample_id = "c" + std::to_string(i);
    record.sample.batch_size = 512;
    double cost_ms = 0.02;
    for (std::uint64_t n = 1 + random.Below(8); n > 0; --n) {
      MeasuredShard shard;
      shard.rows = static_cast<std::int64_t>(std::pow(10, 3 + 3 * random.UniformReal()));
      shard.cols = std::int64_t{4} << random.Below(6);
      shard.pooling_factor = 1 + 30 * random.UniformReal();
      const double once = random.UniformReal();
      shard.reuse_histogram[0] = once;
      shard.reuse_histogram[1] = 1 - once;
      cost_ms += 1e-3 * shard.pooling_factor * (4 + static_cast<double>(shard.cols)) / 20 *
                 (std::log10(static_cast<double>(shard.rows)) + once);
      record.sample.shards.push_back(shard);
    }
    record.forward_ms = 0.4 * cost_ms;
    record.backward_ms = 0.6 * cost_ms;
    record.total_ms = cost_ms;
    records.push_back(std::move(record));
  }
  return records;
}

// Returns collectives of alternating directions in which each rank pays for its own columns and for
// the widest rank, and a late rank waits less.
inline std::vector<CommRecord> SyntheticCommRecords(int count, int num_ranks,
                                                    std::uint64_t seed = 2) {
  Random random(seed);
  std::vector<CommRecord> records;
  for (int i = 0; i < count; ++i) {
    CommRecord record;
    record.sample.sample_id = "m" + std::to_string(num_ranks) + "-" + std::to_string(i);
    record.sample.direction = i % 2 == 0 ? CommDirection::kBackward : CommDirection::kForward;
    record.sample.batch_size = 512;
    std::int64_t widest = 0;
    for (int rank = 0; rank < num_ranks; ++rank) {
      record.sample.dim_sums.push_back(random.Between(16, 1000));
      widest = std::max(widest, record.sample.dim_sums.back());
      if (record.sample.direction == CommDirection::kForward) {
        record.sample.start_offsets_ms.push_back(rank == 0 ? 0
                                                           : static_cast<double>(random.Below(5)));
      }
    }
    for (int rank = 0; rank < num_ranks; ++rank) {
      double cost_ms = 1e-3 * static_cast<double>(record.sample.dim_sums[rank] + 2 * widest) + 0.1;
      if (!record.sample.start_offsets_ms.empty()) {
        const auto& offsets = record.sample.start_offsets_ms;
        cost_ms += *std::max_element(offsets.begin(), offsets.end()) - offsets[rank];
      }
      record.cost_ms.push_back(cost_ms);
      record.environments.push_back(SyntheticEnvironment());
      record.environments.back().properties = {{"collective_backend", "neuroshard-tcp"}};
    }
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace neuroshard
