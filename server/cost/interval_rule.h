// Intervals from the costs by an ensemble's members and a calibration. Training, which calibrates
// them, and serving share the rule.
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
  // Factors of collectives by rank count, since counts differ in noise: 2 and more, ascending,
  // linear in ln(count) between and constant outside. Empty: `factor` holds for all.
  std::vector<std::int64_t> ranks = {};
  std::vector<double> rank_factors = {};  // as many, above 0

  bool operator==(const IntervalManifest&) const = default;
};

// Makes intervals by an IntervalManifest. Immutable, so thread-safe.
class IntervalRule {
 public:
  // `manifest` is one that ReadModelManifest accepts.
  explicit IntervalRule(IntervalManifest manifest) : manifest_(std::move(manifest)) {}

  double coverage() const { return manifest_.coverage; }

  // Noise of ln(cost) at a cost.
  double Noise(double cost_ms) const;

  // The deviation s of ln(cost), from the costs by the members (at least one) and the noise at a
  // cost.
  double Deviation(std::span<const double> member_costs_ms, double noise_at_ms) const;

  // Returns the rule for collectives over so many ranks.
  IntervalRule AtRanks(int num_ranks) const;

  // Returns cost x exp(-+ factor x deviation), [0, 0] for a cost of 0.
  CostInterval Around(double cost_ms, double deviation) const;

  // Typical relative error: the deviation at the noise of the middle point.
  double TypicalError() const;

 private:
  IntervalManifest manifest_;
};

}  // namespace neuroshard
