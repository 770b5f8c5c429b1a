// Drift of a machine away from its model: measurements made after the model against its
// predictions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/store/profile_store.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// Key in the provenance of a model: CacheFlushOf the records of its compute, or kBothFlushes.
inline constexpr char kCacheFlushKey[] = "cache_flush";
inline constexpr char kBothFlushes[] = "with and without";

// The stage that step_records.py of client/python measures, on records of a trainer.
inline constexpr char kStepsStage[] = "steps";

// Compared stages, and samples that were left out.
struct DriftMeasurement {
  std::vector<StageDrift> stages;                // in the order of the names
  std::map<std::string, std::int64_t> left_out;  // samples by reason
};

// Measures each stage with measurements after `made_unix_ms`: median, 10th and 90th percentile of
// measured / predicted over values predicted and measured above 0. Left out are measurements on
// other devices, of other kernels or collectives than the model's (backend_names.h), at other batch
// sizes than that of a model for a single one (a validation looks replicas up for a rank's part of
// the batch), and of compute with the cache flushed where the model's was not, or the other way
// round. A model that does not say was measured with flushes, the default of sweeps.
DriftMeasurement MeasureDrift(const CostModel& model, std::vector<ComputeRecord> compute,
                              std::vector<CommRecord> comm, std::int64_t made_unix_ms);

// Returns whether caches were flushed between iterations, by the settings of the record ("with",
// "without"); empty: not stated.
std::string CacheFlushOf(const MeasurementEnvironment& environment);

// Returns the verdict of a comparison in a sentence: which stages are further off than usual.
std::string DriftVerdict(const CostModelInfo& model, const std::vector<StageDrift>& drift);

// Convert to "2026-11-21T17:30:00Z" and back; nothing for other texts.
std::string UtcText(std::int64_t unix_ms);
std::optional<std::int64_t> UtcFromText(const std::string& text);

}  // namespace neuroshard
