// Drift of the speed of the measuring machine, seen in the errors of a model: neighbours of a
// virtual machine slow it down for minutes, which no feature of a sample has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace neuroshard {

struct MeasurementDrift {
  std::vector<double> slowness;  // by value: the median of measured / predicted in its block
  double least = 1;
  double greatest = 1;
};

// Returns what the errors of each block of about 100 values, consecutive in time, have in common.
// The values have costs above 0 that the model did not learn from. With fewer than 200 values, or
// all of one time (imported ones have none), it is 1 for all.
MeasurementDrift DriftOf(std::span<const double> predicted_ms, std::span<const double> measured_ms,
                         std::span<const std::int64_t> measured_at_unix_ms);

}  // namespace neuroshard
