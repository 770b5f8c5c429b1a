// Calibration of prediction intervals: split conformal prediction (Lei et al., 2018) on samples
// that were not learned from, normalised by how much an ensemble disagrees.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "server/cost/interval_rule.h"

namespace neuroshard {

// Costs as the members of an ensemble predict them, and as measured.
struct EnsemblePredictions {
  std::vector<std::vector<double>> members_ms;  // [values, members]
  std::vector<double> measured_ms;

  // Returns the model's predictions: the mean of the members that price.
  std::vector<double> Model() const;
};

// One value that intervals are calibrated on.
struct CalibrationValue {
  double measured_ms = 0;
  double unseen_ms = 0;            // predicted by a network that had not learned from the value
  std::vector<double> members_ms;  // predictions of the ensemble, for its disagreement
  std::int64_t group = 0;  // group of values that were measured together and so err together
  int num_ranks = 0;       // of a collective; 0: of none
};

// Calibrates an interval. noise: 1.4826 x the median of |ln(measured / unseen)| in up to 8 buckets
// of about equal weight by prediction, of at least 60 groups each. factor: the quantile of
// |ln(measured / unseen)| / deviation that (groups + 1) x coverage groups do not exceed, as in
// conformal prediction. All groups weigh the same, since their values are not independent.
// rank_factors: the same for each rank count with at least 20 groups, where there are two such
// counts. Values that are not above 0 are left out; nothing where fewer than 20 groups are left.
std::optional<IntervalManifest> CalibrateInterval(const std::vector<CalibrationValue>& values,
                                                  double coverage);

// Calibrates an interval on independent values that no member learned from.
std::optional<IntervalManifest> CalibrateInterval(const EnsemblePredictions& predictions,
                                                  double coverage);

// Returns the share of measured values inside their interval, each at a number of ranks (empty: of
// no collective); NaN without values.
double IntervalCoverage(const IntervalManifest& interval, const EnsemblePredictions& predictions,
                        const std::vector<int>& num_ranks = {});

}  // namespace neuroshard
