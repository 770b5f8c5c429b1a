// Samples, settings and records of measurements <-> their messages. Ranges and defaults are those
// of worker.proto. Every Decode returns INVALID_ARGUMENT with a Violation for each faulty field,
// paths relative to the message ("shards[2].rows").
#pragma once

#include "common/base/status.h"
#include "common/codec/field_check.h"
#include "common/domain/measurement.h"
#include "neuroshard/v1/worker.pb.h"

namespace neuroshard {

v1::MeasurementSettings EncodeMeasurementSettings(const MeasurementSettings& settings);
// Absent fields get the defaults of MeasurementSettings.
StatusOr<MeasurementSettings> DecodeMeasurementSettings(const v1::MeasurementSettings& message);

v1::MeasuredShard EncodeMeasuredShard(const MeasuredShard& shard);
// Faults go to where `check` puts them.
MeasuredShard DecodeMeasuredShard(const v1::MeasuredShard& message, const FieldCheck& check);

v1::ComputeSample EncodeComputeSample(const ComputeSample& sample);
StatusOr<ComputeSample> DecodeComputeSample(const v1::ComputeSample& message);

v1::CommSample EncodeCommSample(const CommSample& sample);
// The number of ranks is that of dim_sums; whether the group has as many is for the group to check.
StatusOr<CommSample> DecodeCommSample(const v1::CommSample& message);

v1::ComputeMeasurement EncodeComputeMeasurement(const ComputeMeasurement& measurement);
// A record whose outcome is "ok" must have both series, finite and not negative; any other outcome
// needs neither.
StatusOr<ComputeMeasurement> DecodeComputeMeasurement(const v1::ComputeMeasurement& message);

v1::CommMeasurement EncodeCommMeasurement(const CommMeasurement& measurement);
StatusOr<CommMeasurement> DecodeCommMeasurement(const v1::CommMeasurement& message);

}  // namespace neuroshard
