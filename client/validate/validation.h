// Validation: runs a plan on workers and measures its cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/stub/call_policy.h"
#include "client/validate/plan_shards.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/cli/progress_display.h"
#include "common/domain/measurement.h"
#include "common/domain/plan_cost.h"
#include "common/domain/plan_request.h"
#include "common/store/profile_store.h"

namespace neuroshard {

// One rank as measured. Absent: not measured; the report's notes or `problem` say why.
struct MeasuredRank {
  std::string worker;  // HOST:PORT of the device that ran the rank's lookups
  int device = 0;
  std::optional<double> forward_compute_ms;  // 0 for a rank without shards
  std::optional<double> backward_compute_ms;
  std::optional<double> backward_comm_ms;
  std::optional<double> forward_comm_ms;
  double start_offset_ms = 0;                // with which the rank entered the forward collective
  std::string problem;                       // e.g. out of memory, in the worker's words
  std::optional<double> input_dist_ms = {};  // where the request has a pipeline_type

  std::optional<double> compute_ms() const;
};

// Whether the distribution of ids was measured, and is part of a rank's total.
enum class InputDistUse { kNotMeasured, kHidden, kExposed };

// A plan as it ran: stages by rank, and every record behind them.
struct ValidationReport {
  std::vector<MeasuredRank> ranks;
  InputDistUse input_dist = InputDistUse::kNotMeasured;
  std::vector<std::string> notes;  // what could not be measured, and why
  // The samples with their records, also of what ran out of memory: of every rank with shards in
  // rank order (one of its shards, one of its replicas), and of every collective.
  std::vector<MeasuredComputeSample> compute;
  std::vector<MeasuredCommSample> comm;
  std::string run_id;  // no other validation has it

  // Compute, communication, and the distribution of ids where that is exposed; absent unless all of
  // them were measured.
  std::optional<double> total_ms(std::size_t rank) const;

  // max over ranks of total_ms; absent unless every rank has one.
  std::optional<double> embedding_cost_ms() const;

  // Whose kernels and collectives ran, and on what, by the records; "a+b" where ranks differ.
  MeasuredWith measured_with() const;
};

// Workers and settings of a validation.
struct ValidationOptions {
  std::vector<std::string> workers;  // HOST:PORT
  std::optional<ClientTls> tls = std::nullopt;
  MeasurementSettings settings;
  Cadence cadence = Cadence::kBarrier;  // of collectives; in rows, no rank waits for its offset
};

// Each rank's shards are looked up on a worker's device (ranks go round the workers and their
// devices; all devices work at the same time, ranks that share a device one after the other). Then,
// when every rank has a device of its own: the distributions of ids, where the request has a
// pipeline_type and the workers can; the collectives of the backward stage one by one; and those of
// the forward stage, entered with the measured start offsets (compute + backward communication, and
// the distribution of ids where that is exposed, minus the minimum); a stage takes the sum of its
// collectives (plan_collectives.h). Running out of memory is reported in the rank, not an error.
// UNAVAILABLE and the like when a worker does not do its part; CANCELLED when `stop` ended it, with
// the workers' devices given back either way. `display` gets a note for every step.
StatusOr<ValidationReport> Validate(const PlanRequest& request,
                                    const std::vector<RankShards>& ranks,
                                    const ValidationOptions& options, const StopSignal& stop,
                                    ProgressDisplay& display);

// Writes the samples and records of `report` as sweeps named "validation", one of compute and one
// of communication, in one transaction; returns how many samples that are. Every validation is a
// sweep of its own, since its records are of another time; the same report again changes nothing.
// `config_text` says what was validated.
StatusOr<std::int64_t> RecordValidation(const ValidationReport& report,
                                        const std::string& config_text, ProfileStore& store);

}  // namespace neuroshard
