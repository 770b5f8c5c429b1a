// Drift of a machine away from its model: measurements made after the model against its
// predictions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/store/profile_store.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// Of each stage that was measured after `made_unix_ms`, in the order of the names: median, 10th and
// 90th percentile of measured / predicted over values predicted and measured above 0. Of a model
// for one batch size, only what was measured at that: it has no other prediction (a validation
// looks replicas up for a rank's part of the batch). Measurements of other kernels or collectives
// than the model's (backend_names.h) are left out.
std::vector<StageDrift> MeasureDrift(const CostModel& model, std::vector<ComputeRecord> compute,
                                     std::vector<CommRecord> comm, std::int64_t made_unix_ms);

// "2026-11-21T17:30:00Z"; and back, nothing for other texts.
std::string UtcText(std::int64_t unix_ms);
std::optional<std::int64_t> UtcFromText(const std::string& text);

}  // namespace neuroshard
