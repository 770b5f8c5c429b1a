// How the ranks of a solution stand, and how they would stand after a change of a few of them.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "server/search/refine/comm_response.h"

namespace neuroshard {

// A rank as it would be.
struct RankShift {
  int rank = 0;
  double compute_ms = 0;
  double forward_load = 0;
  double backward_load = 0;
};

// The four numbers a rank stands for, in a placement that was priced.
struct RankStanding {
  double compute_ms = 0;
  double backward_ms = 0;
  double forward_ms = 0;
  double forward_load = 0;
  double backward_load = 0;

  // When it enters the forward collective.
  double ready_ms() const { return compute_ms + backward_ms; }
  double total_ms() const { return compute_ms + backward_ms + forward_ms; }
};

// What local search descends on: the embedding cost, plus a small share of how high the ranks stand
// as a whole. The cost alone says nothing about a step that relieves one of two equally slow ranks,
// nor, where ranks wait for the last one, about any rank but that.
class Outlook {
 public:
  // `separable`: CostModelInfo::separable_comm. `load_price_ms`: what a unit of the largest forward
  // load is worth.
  void Reset(std::span<const RankStanding> ranks, bool separable, double load_price_ms);

  double cost_ms() const { return cost_ms_; }
  double potential_ms() const { return potential_ms_; }
  const RankStanding& rank(int index) const { return ranks_[static_cast<std::size_t>(index)]; }
  int num_ranks() const { return static_cast<int>(ranks_.size()); }

  // The potential after `shifts` (distinct ranks), with communication by `response`.
  double Estimate(std::span<const RankShift> shifts,
                  const CommResponse::Coefficients& response) const;

 private:
  enum Measure { kReady, kTotal, kForwardLoad, kBackwardLoad, kMeasures };
  static constexpr std::size_t kLeaders = 6;

  static double Of(const RankStanding& rank, int measure);
  // The largest value among ranks that are not shifted.
  double LargestOfOthers(int measure, std::span<const RankShift> shifts) const;

  std::vector<RankStanding> ranks_;
  bool separable_ = false;
  double load_price_ms_ = 0;
  double cost_ms_ = 0;
  double potential_ms_ = 0;
  // By measure: the ranks with the largest values in descending order, and the sum over ranks of
  // (value / largest)^kPower.
  std::array<std::vector<int>, kMeasures> leaders_;
  std::array<double, kMeasures> largest_{};
  std::array<double, kMeasures> power_sums_{};
  std::array<double, kMeasures> power_means_{};
};

}  // namespace neuroshard
