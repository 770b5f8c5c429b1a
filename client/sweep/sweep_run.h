// Options and report of a run of any sweep.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/stub/call_policy.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/cli/progress_display.h"
#include "common/domain/measurement.h"
#include "common/store/profile_store.h"

namespace neuroshard {

// The workers of a sweep, and how long it puts up with those that fail.
struct FleetOptions {
  std::vector<std::string> workers;  // HOST:PORT, each once
  std::optional<ClientTls> tls = std::nullopt;
  // Compute samples run on at most so many devices of each worker at a time; 0: on all. Devices
  // that share a processor disturb each other's measurements.
  int devices_per_worker = 0;
  // A worker or device that gave nothing for this long is dropped for the rest of the run. A
  // restarted worker on the same address is used again within it.
  std::chrono::milliseconds reconnect_window{60'000};
  std::chrono::milliseconds first_backoff{200};
  std::chrono::milliseconds longest_backoff{5'000};
  // The time of one sample, from start to record; a worker that takes longer is treated as broken.
  std::chrono::milliseconds sample_deadline{300'000};
};

// References must outlive the run. `stop` ends it early; it is polled, from one thread.
struct SweepRun {
  ProfileStore& store;
  std::int64_t sweep_id;
  MeasurementSettings settings;
  FleetOptions fleet;
  const Clock& clock;
  const StopSignal& stop;
  ProgressDisplay& display;
};

// A sample without a record at the end of a run, and why.
struct GivenUpSample {
  std::string sample_id;
  std::string reason;
};

// A worker, or a device of it, that the run had to do without at its end, and why.
struct LostWorker {
  std::string worker;         // HOST:PORT
  std::optional<int> device;  // none: all of them
  std::string reason;
};

// The outcome of one run of a sweep.
struct SweepReport {
  // OK: every pending sample has its record. CANCELLED: stopped. UNAVAILABLE: no worker is left.
  // Otherwise why the run ended. Whatever was measured is in the store in every case; the same
  // sweep again continues.
  Status status;
  std::int64_t recorded = 0;  // by this run
  std::int64_t out_of_memory = 0;
  std::vector<GivenUpSample> given_up;
  std::vector<LostWorker> lost;  // none after a run that was stopped
};

// Hands `pending` out to free devices, one stream a device, and writes every record to the store in
// a transaction of its own as it arrives. Samples of a worker that dies go back to the others; a
// worker that is restarted on its address is used again. Blocks until every sample has a record or
// is given up, the run is stopped (measurements in flight are cancelled, they cost seconds), or no
// worker is left.
SweepReport RunSweep(const SweepRun& run, std::vector<ComputeSample> pending);

// Measures collectives. For each number of ranks it opens one group whose ranks go round the
// workers, measures all its pending samples on it one after the other, and writes the records of
// all ranks of a sample in one transaction. A group that breaks is opened again on the workers that
// are there, and its sample measured again. Ends as a compute sweep does; FAILED_PRECONDITION when
// the workers have fewer devices than some samples have ranks (the others are measured first).
SweepReport RunSweep(const SweepRun& run, std::vector<CommSample> pending);

}  // namespace neuroshard
