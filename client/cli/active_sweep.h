// Active sweeps in a profile store: samples that a cost model is least sure of.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "client/stub/call_policy.h"
#include "client/sweep/active_sampling.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/store/profile_store.h"

namespace neuroshard {

// The pool that the configuration gives, to choose from. config_hash of `info` is of the
// configuration alone.
struct ActivePool {
  SweepInfo info;
  std::vector<ComputeSample> candidates;
  int num_samples = 0;
  int repeats = 1;
};

// The planner and the cost model that choose the samples of an active sweep.
struct ActiveOptions {
  std::string planner;  // HOST:PORT; may be empty when the sweep is in the store
  CallPolicy policy;
  CostModelRef model;
};

// An active sweep in the store, ready to be measured.
struct ActiveSweep {
  std::int64_t sweep_id = 0;
  std::int64_t num_samples = 0;  // all passes
  CostModelRef chosen_by;
  bool resumed = false;  // it was in the store before
};

// The model with its version is part of the sweep's identity. A sweep that is in the store already
// keeps the samples chosen then, whatever the planner would choose now; else the planner's model
// chooses. FAILED_PRECONDITION when the model's newest version is another than the one of an
// unfinished sweep of this configuration: the caller has to name the version to go on with. `log`
// is told when the planner is asked, which takes a while.
StatusOr<ActiveSweep> BeginActiveSweep(const ActivePool& pool, const ActiveOptions& options,
                                       ProfileStore& store, const StopSignal& stop,
                                       std::ostream& log);

}  // namespace neuroshard
