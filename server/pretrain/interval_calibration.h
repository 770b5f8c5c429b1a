// How sure an ensemble may say that it is, by how wrong it was on samples that it did not learn
// from.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "server/models/universal_manifest.h"

namespace neuroshard {

// What an ensemble says of some values, and what was measured.
struct EnsemblePredictions {
  std::vector<std::vector<double>> members_ms;  // of each value, the model first
  std::vector<double> measured_ms;

  // Of the model.
  std::vector<double> Model() const;
};

// noise: 1.4826 x the median of |ln(measured / predicted)| in up to 8 buckets of about equal size
// by predicted cost, at least 20 values each; factor: the ceil((n + 1) coverage) / n quantile of
// |ln(measured / predicted)| / deviation, as conformal prediction takes it. Values that are not
// above 0 are left out; nothing where fewer than 20 are left.
std::optional<IntervalManifest> CalibrateInterval(const EnsemblePredictions& predictions,
                                                  double coverage);

// The share of measured values inside their interval; NaN of none.
double IntervalCoverage(const IntervalManifest& interval, const EnsemblePredictions& predictions);

}  // namespace neuroshard
