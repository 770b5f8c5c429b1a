// Interval rule: from the members' costs and the calibration to an interval. One rule for training,
// which calibrates it, and serving.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/domain/plan_cost.h"

namespace neuroshard {

// The calibration of an interval, as a manifest has it: cost x exp(-+ factor x s) with s^2 =
// variance over the members of ln(cost) + noise^2; noise is piecewise linear in ln(cost) through
// (noise_cost_ms[i], noise[i]) and constant outside.
struct IntervalManifest {
  double coverage = 0.9;              // in (0, 1)
  double factor = 1;                  // above 0
  std::vector<double> noise_cost_ms;  // 1 to 8, ascending, above 0
  std::vector<double> noise;          // as many, at least 0
  // Of collectives, whose rank counts differ in noise: factors of these counts (2 and more,
  // ascending), linear in ln(count) between and constant outside. Empty: `factor` is that of all.
  std::vector<std::int64_t> ranks = {};
  std::vector<double> rank_factors = {};  // as many, above 0

  bool operator==(const IntervalManifest&) const = default;
};

// cost x exp(-+ factor s), s the deviation of ln(cost) by members and noise. Immutable.
class IntervalRule {
 public:
  // `manifest` is one that ReadModelManifest accepts.
  explicit IntervalRule(IntervalManifest manifest) : manifest_(std::move(manifest)) {}

  double coverage() const { return manifest_.coverage; }

  // Piecewise linear in ln(cost) through the manifest's points, constant outside.
  double Noise(double cost_ms) const;

  // s: of ln(cost), from what the members say (at least one) and the noise at a cost.
  double Deviation(std::span<const double> member_costs_ms, double noise_at_ms) const;

  // The rule for collectives over so many ranks: the factor is linear in ln(ranks) between those
  // that the manifest has factors of, and constant outside.
  IntervalRule AtRanks(int num_ranks) const;

  // cost x exp(-+ factor x deviation); [0, 0] of 0.
  CostInterval Around(double cost_ms, double deviation) const;

  // A typical error, as a share of the cost: the deviation at the noise in the middle of the
  // points.
  double TypicalError() const;

 private:
  IntervalManifest manifest_;
};

}  // namespace neuroshard
