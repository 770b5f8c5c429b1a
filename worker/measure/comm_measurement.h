// Measurement of a CommSample by one rank. Every rank of the group runs this at the same time with
// the same sample.
#pragma once

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/measurement.h"
#include "kernels/api/collective.h"
#include "kernels/api/device_backend.h"
#include "worker/measure/record_stamp.h"
#include "worker/measure/timekeeper.h"

namespace neuroshard {

// An iteration: the ranks agree whether to go on, meet in a barrier, each waits for its start
// offset (less the smallest), then runs the sample's collective, with the casts of its wire_dtype,
// or distribution of ids. A sample is the rank's own completion minus its own start, so a rank that
// enters early is charged for waiting for the last. Caches are not flushed: in training, too, the
// lookup has just written what is sent.
//
// With cadence back_to_back an iteration is one of up to 8 exchanges in a row, each of which a rank
// begins as soon as its own previous one has ended. They follow another one that began at the
// barrier and does not count; the ranks agree between rows. On a device that can hold back enqueued
// work, enqueueing is not part of their time either.
//
// All ranks run the same number of iterations: the group stops when every rank's stopping rule is
// satisfied, or when any rank has spent max_time_ms in timed iterations, start offsets included
// (after min_iterations), or when any rank's `stop` stops.
//
// A buffer that does not fit on any rank gives Outcome::kOutOfMemory on all. Errors that all ranks
// agree on, after which the group is still in step: CANCELLED; FAILED_PRECONDITION when the ranks
// were given different samples or settings. Any other error (ABORTED) broke the group. The sample
// passed CheckCommSample. Call on the device's thread.
StatusOr<CommMeasurement> MeasureComm(Communicator& communicator, const DeviceProperties& device,
                                      const CommSample& sample, const MeasurementSettings& settings,
                                      const RecordStamp& stamp, const Timekeeper& time,
                                      const StopSignal& stop);

}  // namespace neuroshard
