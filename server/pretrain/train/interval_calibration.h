// Calibration of prediction intervals: split conformal prediction (Lei et al., 2018) on samples
// that were not learned from, normalised by how much an ensemble disagrees.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "server/networks/model_manifest.h"

namespace neuroshard {

// Costs as the members of an ensemble predict them, and as measured.
struct EnsemblePredictions {
  std::vector<std::vector<double>> members_ms;  // of each value
  std::vector<double> measured_ms;

  // Of the model: the mean of the members that price.
  std::vector<double> Model() const;
};

// One value that intervals are calibrated on.
struct CalibrationValue {
  double measured_ms = 0;
  double unseen_ms = 0;            // said by a network that had not learned from the value
  std::vector<double> members_ms;  // by the ensemble: how much it disagrees
  std::int64_t group = 0;  // values that were measured together, and err together, have the same
  int num_ranks = 0;       // of a collective; 0: of none
};

// noise: 1.4826 x the median of |ln(measured / unseen)| in up to 8 buckets of about equal weight by
// what was said, at least 60 groups each; factor: the quantile of |ln(measured / unseen)| /
// deviation that (groups + 1) x coverage groups do not exceed, as conformal prediction takes it.
// All groups weigh the same: their values are not independent. rank_factors: the same of each rank
// count that 20 groups or more have, where there are two such counts. Values that are not above 0
// are left out; nothing where fewer than 20 groups are left.
std::optional<IntervalManifest> CalibrateInterval(const std::vector<CalibrationValue>& values,
                                                  double coverage);

// Of values that stand alone and that no member had learned from.
std::optional<IntervalManifest> CalibrateInterval(const EnsemblePredictions& predictions,
                                                  double coverage);

// The share of measured values inside their interval, at a number of ranks each (empty: of no
// collective); NaN of none.
double IntervalCoverage(const IntervalManifest& interval, const EnsemblePredictions& predictions,
                        const std::vector<int>& num_ranks = {});

}  // namespace neuroshard
