// Drift of the speed of the machine that measured, seen in the errors of a model: neighbours of a
// virtual machine make it slower for minutes, which no feature of a sample tells.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace neuroshard {

struct MeasurementDrift {
  std::vector<double> slowness;  // of each value: the median of measured / predicted in its block
  double least = 1;
  double greatest = 1;
};

// Blocks of about 100 values, one after the other in time, of costs above 0 that a model had not
// learned from: what their errors have in common. Fewer than 200 values, or all of
// one time (imported ones do not tell): 1 for all.
MeasurementDrift DriftOf(std::span<const double> predicted_ms, std::span<const double> measured_ms,
                         std::span<const std::int64_t> measured_at_unix_ms);

}  // namespace neuroshard
