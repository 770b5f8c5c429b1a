// The fields of samples and of their records: named as those of worker.proto, and of the store's
// rows, whose JSON has every one of them, so that a new one needs a new version of the store. Not
// here are those whose form depends on others, such as the collective of a CommSample.
#pragma once

#include "common/domain/fields.h"
#include "common/domain/measurement.h"

namespace neuroshard {

NS_FIELDS(MeasuredShard, table, rows, cols, pooling_factor, reuse_histogram, weight_dtype,
          pooling_mode, weighted);
NS_FIELDS(ComputeSample, sample_id, batch_size, optimizer, seed);
NS_FIELDS(InputDistSample, whole_features, whole_ids, cut_features, cut_ids, weighted, seed);
NS_FIELDS(CommSample, sample_id, dim_sums, start_offsets_ms, batch_size);
NS_FIELDS(MeasurementSettings, warmup_iterations, min_iterations, max_iterations,
          target_relative_error, max_time_ms, flush_cache);
NS_FIELDS(TimedSeries, samples_ms, median_ms, relative_spread, stop_reason, warmup_iterations);
NS_FIELDS(MeasurementEnvironment, worker_version, git_commit, hostname, device, backend);
NS_FIELDS(ComputeMeasurement, sample_id, outcome, detail);
NS_FIELDS(CommMeasurement, sample_id, rank, outcome, detail);

}  // namespace neuroshard
