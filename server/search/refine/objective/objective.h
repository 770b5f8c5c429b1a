// Objective of local search, and its estimate after a change of a few ranks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "common/base/positions.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// A linear model of the communication cost, that estimates most moves so that only the best of
// them need the cost model: of a rank between two placements that differ little
//   backward = backward_own x change of own load + backward_largest x change of the largest load
//   forward  = the same, + forward_wait x change of (largest start offset - own start offset)
// Own loads are of the rank, largest ones over all ranks, both in the unit of CommLoad; ms a unit.
struct CommSurrogate {
  double backward_own = 0;
  double backward_largest = 0;
  double forward_own = 0;
  double forward_largest = 0;
  double forward_wait = 0;  // in [0, 1]: a rank waits at most as long as it is ahead
};

// Fits the surrogate around all ranks holding these loads and being ready at once, from what half
// as much again costs on one rank and on all, and what one late rank costs the others. Prices 4
// placements.
CommSurrogate ProbeComm(const BoundCostModel& model, double forward_load, double backward_load);

// A rank as it would be.
struct RankChange {
  int rank = 0;
  double compute_ms = 0;
  double forward_load = 0;
  double backward_load = 0;
};

// Times and loads of a rank in a placement that was priced.
struct RankPrice {
  double compute_ms = 0;
  double backward_ms = 0;
  double forward_ms = 0;
  double forward_load = 0;
  double backward_load = 0;

  // When it enters the forward collective.
  double ready_ms() const { return compute_ms + backward_ms; }
  double total_ms() const { return compute_ms + backward_ms + forward_ms; }
};

// What local search descends on: the embedding cost (the largest total of a rank), plus a small
// share of the 16-power means over all ranks of totals, times until ready and forward loads, and of
// the mean compute. The cost alone says nothing about a step that relieves one of two equally slow
// ranks, nor, where ranks wait for the last one, about any rank but that; nor about a step that
// saves work on one of many ranks that are all as slow. Reset takes time in the ranks,
// LargestExcept and Estimate in those that change. For one thread; const methods for any number.
class Objective {
 public:
  // What counts besides the cost.
  struct Weights {
    double load_ms = 0;   // a unit of the largest forward load
    double work = 0;      // mean compute over all ranks
    double moves_ms = 0;  // what moves from a plan in place cost, a part of the cost
  };
  // The 16-power mean of a value of every rank, and what it is made of.
  struct PowerMean {
    double largest = 0;  // value
    double sum = 0;      // of the powers of the values over the largest
    double mean = 0;
  };
  // The objective of a placement, and its parts.
  struct Value {
    double cost_ms = 0;
    double value_ms = 0;
    double compute_sum_ms = 0;
    // Where communication is separable, of totals alone.
    PowerMean ready;
    PowerMean total;
    PowerMean forward_load;
  };
  // `separable`: ModelProperties::separable_comm.
  static Value Evaluate(std::span<const RankPrice> ranks, bool separable, const Weights& weights);

  // Evaluates a placement, and makes ready to estimate changes of it.
  void Reset(std::span<const RankPrice> ranks, bool separable, const Weights& weights);

  double cost_ms() const { return now_.cost_ms; }
  double value_ms() const { return now_.value_ms; }
  const std::vector<RankPrice>& ranks() const { return ranks_; }
  const RankPrice& rank(int index) const { return ranks_[static_cast<std::size_t>(index)]; }
  int num_ranks() const { return static_cast<int>(ranks_.size()); }
  // By rank.
  std::vector<double> TotalsMs() const;
  // Up to `count` ranks, without `except` (-1: all), those with the largest value(RankPrice), in that
  // order; of equal ones the lower comes first.
  template <typename ValueOf>
  std::vector<int> Largest(std::size_t count, const ValueOf& value, int except = -1) const {
    std::vector<int> largest = Positions<int>(ranks_.size());
    std::erase(largest, except);
    BringLargest(largest, count, value);
    if (largest.size() > count) largest.resize(count);
    return largest;
  }
  // The ranks with the lowest totals, lowest first.
  std::vector<int> Lowest(std::size_t count, int except = -1) const {
    return Largest(
        count, [](const RankPrice& r) { return -r.total_ms(); }, except);
  }
  // Brings those of `ranks` to the front that have the `count` largest value(RankPrice), ordered as
  // Largest's are.
  template <typename ValueOf>
  void BringLargest(std::span<int> ranks, std::size_t count, const ValueOf& value) const {
    count = std::min(count, ranks.size());
    std::partial_sort(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count),
                      ranks.end(), [&](int a, int b) {
                        const double of_a = value(rank(a));
                        const double of_b = value(rank(b));
                        return of_a != of_b ? of_a > of_b : a < b;
                      });
  }

  // The largest values among all ranks but a few.
  struct LargestValues {
    double ready_ms = 0;
    double total_ms = 0;
    double forward_load = 0;
    double backward_load = 0;
  };
  LargestValues LargestExcept(std::span<const int> ranks) const;

  // The objective after `changes` (distinct ranks), with communication by `surrogate` and what
  // moves cost as it is. Where the cost in it is `limit_ms` or more, that alone, which takes less
  // time. `unchanged`: LargestExcept of the changed ranks.
  double Estimate(std::span<const RankChange> changes, const LargestValues& unchanged,
                  const CommSurrogate& surrogate,
                  double limit_ms = std::numeric_limits<double>::infinity()) const;

 private:
  enum Measure { kReady, kTotal, kForwardLoad, kBackwardLoad, kMeasures };
  static constexpr std::size_t kLeaders = 6;
  static constexpr int kPowers = 3;  // the measures with a power mean come first

  static double Of(const RankPrice& rank, int measure);
  // The largest value among ranks that are not changed.
  double LargestUnchanged(int measure, std::span<const int> changed) const;

  std::vector<RankPrice> ranks_;
  bool separable_ = false;
  Weights weights_;
  Value now_;
  // By measure: the ranks with the largest values in descending order; the largest value, and one
  // over it; the power of every rank's value over the largest and their sum; a power mean as offset
  // + slope x that sum.
  std::array<std::vector<int>, kMeasures> leaders_;
  std::array<double, kMeasures> largest_{};
  std::array<double, kPowers> scales_{};
  std::array<std::vector<double>, kPowers> powers_;
  std::array<double, kPowers> power_sums_{};
  std::array<double, kPowers> mean_offsets_{};
  std::array<double, kPowers> mean_slopes_{};
};

}  // namespace neuroshard
