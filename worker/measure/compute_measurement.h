// Measurement of a ComputeSample: the warm-up, flush, time and stop loop of the paper's compute
// cost collection (NeuroShard, section 3; nvbench's cold measurements).
#pragma once

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/measurement.h"
#include "kernels/api/device_backend.h"
#include "worker/measure/record_stamp.h"

namespace neuroshard {

// Samples with fewer ids than this a batch (8 MiB) rotate kRotatedBatches distinct batches, so that
// the series covers more than one draw of ids; for larger ones a draw is representative and making
// another costs a CPU more than measuring it. Neither do samples rotate whose batch, with the
// offsets of its many samples and shards, takes more than kMaxRotatedBytes: a CPU holds all of them
// at once.
inline constexpr std::int64_t kMaxRotatedLookups = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxRotatedBytes = 64 * kMiB;
inline constexpr int kRotatedBatches = 2;
// Samples with caches have a new batch in every iteration. Before the first they go through batches
// until the caches have no free slot, until kIdleFillingBatches in a row filled none, or at most so
// many batches and ids: what is measured is a warm cache, or one that such lookups do not fill.
inline constexpr std::int64_t kMaxFillingLookups = std::int64_t{1} << 23;
inline constexpr int kMaxFillingBatches = 4096;
inline constexpr int kIdleFillingBatches = 64;

// Runs settings.warmup_iterations untimed pairs of forward and backward, then timed pairs until
// both series' stopping rules (kernels/stats) are satisfied. A timed pair is: new ids if rotated,
// flush (caches, and the mapping of rows in host memory), time forward, flush, time backward; ids,
// flush and output gradient are outside the timed part. max_time_ms bounds the timed part of both
// series together; the one that had not finished by then gets kMaxTime.
//
// Memory that does not suffice gives a record with Outcome::kOutOfMemory. Errors: INVALID_ARGUMENT
// for a sample that the backend or the id generator refuses, CANCELLED when `stop` stops, which is
// looked at before every iteration. Call on the device's thread.
StatusOr<ComputeMeasurement> MeasureCompute(DeviceBackend& device, const ComputeSample& sample,
                                            const MeasurementSettings& settings,
                                            const RecordStamp& stamp, const StopSignal& stop);

}  // namespace neuroshard
