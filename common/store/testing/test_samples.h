// Samples and measurements that tests put into stores.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/domain/measurement.h"
#include "common/store/profile_store.h"

namespace neuroshard {

inline SweepInfo Info(const std::string& hash) { return {"test", hash, "seed: 1\n"}; }

inline ComputeSample MakeComputeSample(int i) {
  ComputeSample sample;
  sample.sample_id = "c" + std::to_string(i);
  for (int k = 0; k < 1 + i % 3; ++k) {
    MeasuredShard shard;
    shard.table = "table_" + std::to_string(k);
    shard.rows = 1000 + k;
    shard.cols = 4 << k;
    shard.pooling_factor = 1.0 / 3 + k;
    shard.reuse_histogram[0] = 0.1;
    shard.reuse_histogram[16] = 0.9;
    shard.weighted = k == 1;
    if (k == 1) shard.compute_kernel = ComputeKernel::kFusedUvm;
    if (k == 2) {
      shard.compute_kernel = ComputeKernel::kFusedUvmCaching;
      shard.cache_load_factor = 1.0 / 3;
    }
    sample.shards.push_back(shard);
  }
  sample.batch_size = 512;
  sample.optimizer = Optimizer::kRowwiseAdagrad;
  sample.seed = std::numeric_limits<std::uint64_t>::max() - static_cast<std::uint64_t>(i);
  return sample;
}

inline CommSample MakeCommSample(int i) {
  CommSample sample;
  sample.sample_id = "m" + std::to_string(i);
  sample.direction = i % 2 == 0 ? CommDirection::kForward : CommDirection::kBackward;
  sample.dim_sums = {64 + i, 0, 128};
  if (i % 2 == 0) sample.start_offsets_ms = {0.1, 0, 2.5};
  sample.batch_size = 768;
  if (i % 5 == 4) {
    sample.dim_sums = {0, 0, 0};
    sample.input_dist =
        InputDistSample{{2, 0, 1}, {3.5, 0, 1.0 / 3}, i,
                        0.1,       i % 2 == 0,        std::numeric_limits<std::uint64_t>::max()};
    return sample;
  }
  if (i == 2) {
    sample.wire_dtype = DataType::kFp16;
    sample.element_bytes = 2;
  }
  if (i == 5) sample.cadence = Cadence::kBackToBack;
  if (i >= 3) sample.collective = kWords<Collective>[i % kWords<Collective>.size()].value;
  return sample;
}

inline std::vector<ComputeSample> ComputeSamples(int n) {
  std::vector<ComputeSample> samples;
  for (int i = 0; i < n; ++i) samples.push_back(MakeComputeSample(i));
  return samples;
}

inline std::vector<CommSample> CommSamples(int n) {
  std::vector<CommSample> samples;
  for (int i = 0; i < n; ++i) samples.push_back(MakeCommSample(i));
  return samples;
}

inline TimedSeries Series(double median_ms) {
  return {{median_ms, median_ms * 1.1, median_ms * 0.9}, median_ms, 0.2, StopReason::kMaxTime, 3};
}

inline MeasurementEnvironment Environment(std::int64_t at) {
  return {"1.0", "abc", "host", "CPU \xE2\x84\xA2", "neuroshard-cpu", {{"os", "Debian"}}, at};
}

inline ComputeMeasurement ComputeResult(const std::string& id, Outcome outcome = Outcome::kOk) {
  ComputeMeasurement result;
  result.sample_id = id;
  result.outcome = outcome;
  if (outcome == Outcome::kOk) {
    result.forward = Series(0.1);
    result.backward = Series(0.2);
  } else {
    result.detail = "needs 3 GiB";
  }
  result.environment = Environment(1234);
  return result;
}

inline std::vector<CommMeasurement> CommResults(const std::string& id, int ranks = 3) {
  std::vector<CommMeasurement> results;
  for (int rank = ranks - 1; rank >= 0; --rank) {
    results.push_back({id, rank, Outcome::kOk, "", Series(1.0 + rank), Environment(rank)});
  }
  return results;
}

}  // namespace neuroshard
