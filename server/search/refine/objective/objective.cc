#include "server/search/refine/objective/objective.h"

#include <cmath>

namespace neuroshard {
namespace {

// Share of the power means in the objective: below what one move usually gains, so that it
// decides between equals.
constexpr double kShare = 0.05;
// Share of the power mean of loads, a large one: often many ranks have the largest load, and no
// move relieves them all.
constexpr double kLoadShare = 0.7;

double Power16(double x) {
  x *= x;
  x *= x;
  x *= x;
  return x * x;
}

double Root16(double x) { return std::sqrt(std::sqrt(std::sqrt(std::sqrt(x)))); }

// Stands in for the largest value where all are 0.
constexpr double kMinLargest = 1e-12;

enum Row { kEven, kAllMore, kOneMore, kOneLate, kRows };

// The slopes of one direction: ms a unit of own load, of the largest load, and of waiting.
struct Slopes {
  double own = 0;
  double largest = 0;
  double wait = 0;
};

Slopes SlopesOf(const std::vector<float>& cost_ms, std::size_t ranks, double more_load,
                double late_ms) {
  const auto others = [&](Row row) {  // mean over ranks but the first
    double sum = 0;
    for (std::size_t r = 1; r < ranks; ++r) {
      sum += static_cast<double>(cost_ms[row * ranks + r]) - cost_ms[r];
    }
    return ranks > 1 ? sum / static_cast<double>(ranks - 1) : 0.0;
  };
  const double all = static_cast<double>(cost_ms[kAllMore * ranks]) - cost_ms[0];
  Slopes slopes;
  slopes.largest = std::max(0.0, others(kOneMore) / more_load);
  slopes.own = std::max(0.0, all / more_load - slopes.largest);
  slopes.wait = std::clamp(others(kOneLate) / late_ms, 0.0, 1.0);
  return slopes;
}

}  // namespace

CommSurrogate ProbeComm(const BoundCostModel& model, double forward_load, double backward_load) {
  const std::size_t ranks = static_cast<std::size_t>(model.num_ranks());
  const auto loads_of = [&](double load) {
    std::vector<float> loads(kRows * ranks, static_cast<float>(load));
    for (std::size_t r = 0; r < ranks; ++r) loads[kAllMore * ranks + r] *= 1.5F;
    loads[kOneMore * ranks] *= 1.5F;
    return loads;
  };
  forward_load = std::max(forward_load, 1e-6);
  backward_load = std::max(backward_load, 1e-6);
  std::vector<float> cost_ms(kRows * ranks);
  model.comm().BackwardCosts(loads_of(backward_load), cost_ms);
  const Slopes backward = SlopesOf(cost_ms, ranks, backward_load / 2, 1);
  const double late_ms = std::max(0.1, 0.5 * static_cast<double>(cost_ms[0]));
  std::vector<float> start_offsets_ms(kRows * ranks, 0.0F);
  start_offsets_ms[kOneLate * ranks] = static_cast<float>(late_ms);
  model.comm().ForwardCosts(loads_of(forward_load), start_offsets_ms, cost_ms);
  const Slopes forward = SlopesOf(cost_ms, ranks, forward_load / 2, late_ms);
  return {.backward_own = backward.own,
          .backward_largest = backward.largest,
          .forward_own = forward.own,
          .forward_largest = forward.largest,
          .forward_wait = forward.wait};
}

double Objective::Of(const RankPrice& rank, int measure) {
  switch (measure) {
    case kReady:
      return rank.ready_ms();
    case kTotal:
      return rank.total_ms();
    case kForwardLoad:
      return rank.forward_load;
    default:
      return rank.backward_load;
  }
}

std::vector<double> Objective::TotalsMs() const {
  std::vector<double> total_ms;
  total_ms.reserve(ranks_.size());
  for (const RankPrice& r : ranks_) total_ms.push_back(r.total_ms());
  return total_ms;
}

Objective::Value Objective::Evaluate(std::span<const RankPrice> ranks, bool separable,
                                     const Weights& weights) {
  const double count = static_cast<double>(ranks.size());
  const auto mean_of = [&](const auto& value) {
    PowerMean mean{.largest = kMinLargest};
    for (const RankPrice& r : ranks) mean.largest = std::max(mean.largest, value(r));
    const double scale = 1 / mean.largest;
    for (const RankPrice& r : ranks) mean.sum += Power16(value(r) * scale);
    mean.mean = mean.largest * Root16(mean.sum / count);
    return mean;
  };
  Value of;
  of.total = mean_of([](const RankPrice& r) { return r.total_ms(); });
  of.cost_ms = of.total.largest + weights.moves_ms;
  for (const RankPrice& r : ranks) of.compute_sum_ms += r.compute_ms;
  of.value_ms = of.cost_ms + kShare * of.total.mean + weights.work * of.compute_sum_ms / count;
  if (separable) return of;
  of.ready = mean_of([](const RankPrice& r) { return r.ready_ms(); });
  of.forward_load = mean_of([](const RankPrice& r) { return r.forward_load; });
  of.value_ms += kShare * of.ready.mean + kLoadShare * weights.load_ms * of.forward_load.mean;
  return of;
}

void Objective::Reset(std::span<const RankPrice> ranks, bool separable, const Weights& weights) {
  ranks_.assign(ranks.begin(), ranks.end());
  separable_ = separable;
  weights_ = weights;
  now_ = Evaluate(ranks_, separable, weights);
  const std::array<PowerMean, kPowers> means = {now_.ready, now_.total, now_.forward_load};
  for (int m = 0; m < kMeasures; ++m) {
    if (separable_ && m != kTotal) continue;
    const std::size_t measure = static_cast<std::size_t>(m);
    leaders_[measure] = Largest(kLeaders, [&](const RankPrice& r) { return Of(r, m); });
    largest_[measure] = std::max(Of(rank(leaders_[measure].front()), m), kMinLargest);
    if (m >= kPowers) continue;
    scales_[measure] = 1 / largest_[measure];
    std::vector<double>& powers = powers_[measure];
    powers.clear();
    for (const RankPrice& r : ranks_) powers.push_back(Power16(Of(r, m) * scales_[measure]));
    power_sums_[measure] = means[measure].sum;
    // To first order around what is.
    mean_offsets_[measure] = means[measure].mean * 15 / 16;
    mean_slopes_[measure] = means[measure].mean / (16 * means[measure].sum);
  }
}

double Objective::LargestUnchanged(int measure, std::span<const int> changed) const {
  const std::vector<int>& leaders = leaders_[static_cast<std::size_t>(measure)];
  for (const int leader : leaders) {
    if (std::ranges::find(changed, leader) == changed.end()) {
      return Of(rank(leader), measure);
    }
  }
  if (leaders.size() == ranks_.size()) return 0;
  // More changes than leaders: no rank below them is higher than the last one.
  return Of(rank(leaders.back()), measure);
}

Objective::LargestValues Objective::LargestExcept(std::span<const int> ranks) const {
  LargestValues largest;
  largest.total_ms = LargestUnchanged(kTotal, ranks);
  if (separable_) return largest;
  largest.ready_ms = LargestUnchanged(kReady, ranks);
  largest.forward_load = LargestUnchanged(kForwardLoad, ranks);
  largest.backward_load = LargestUnchanged(kBackwardLoad, ranks);
  return largest;
}

double Objective::Estimate(std::span<const RankChange> changes, const LargestValues& unchanged,
                           const CommSurrogate& surrogate, double limit_ms) const {
  limit_ms -= weights_.moves_ms;
  double forward_change = 0;  // for everybody, by the largest load
  double backward_change = 0;
  double last_ready_ms = 0;
  double unchanged_shift = 0;
  const auto ready_after = [&](const RankChange& change, const RankPrice& now) {
    return change.compute_ms + now.backward_ms + backward_change +
           surrogate.backward_own * (change.backward_load - now.backward_load);
  };
  if (!separable_) {
    double forward_load = unchanged.forward_load;
    double backward_load = unchanged.backward_load;
    for (const RankChange& change : changes) {
      forward_load = std::max(forward_load, change.forward_load);
      backward_load = std::max(backward_load, change.backward_load);
    }
    forward_change = surrogate.forward_largest * (forward_load - largest_[kForwardLoad]);
    backward_change = surrogate.backward_largest * (backward_load - largest_[kBackwardLoad]);
    last_ready_ms = unchanged.ready_ms + backward_change;
    for (const RankChange& change : changes) {
      last_ready_ms = std::max(last_ready_ms, ready_after(change, rank(change.rank)));
    }
    // A rank that is not changed is ready as before but for the largest load's part.
    unchanged_shift = backward_change + forward_change +
                      surrogate.forward_wait * (last_ready_ms - largest_[kReady] - backward_change);
  }
  double cost_ms = unchanged.total_ms + unchanged_shift;
  double compute_sum_ms = now_.compute_sum_ms;
  std::array<double, kPowers> powers = power_sums_;
  for (const RankChange& change : changes) {
    const std::size_t r = static_cast<std::size_t>(change.rank);
    const RankPrice& now = ranks_[r];
    const double ready_ms = ready_after(change, now);
    double total_ms = ready_ms + now.forward_ms + forward_change +
                      surrogate.forward_own * (change.forward_load - now.forward_load);
    if (!separable_) {
      total_ms += surrogate.forward_wait *
                  ((last_ready_ms - largest_[kReady]) - (ready_ms - now.ready_ms()));
      powers[kReady] += Power16(ready_ms * scales_[kReady]) - powers_[kReady][r];
      powers[kForwardLoad] +=
          Power16(change.forward_load * scales_[kForwardLoad]) - powers_[kForwardLoad][r];
    }
    cost_ms = std::max(cost_ms, total_ms);
    if (cost_ms >= limit_ms) return cost_ms + weights_.moves_ms;  // the power means only add to it
    compute_sum_ms += change.compute_ms - now.compute_ms;
    powers[kTotal] += Power16((total_ms - unchanged_shift) * scales_[kTotal]) - powers_[kTotal][r];
  }
  const auto mean = [&](std::size_t measure) {
    return mean_offsets_[measure] + mean_slopes_[measure] * powers[measure];
  };
  double value_ms = cost_ms + kShare * (mean(kTotal) + unchanged_shift) +
                    weights_.work * compute_sum_ms / static_cast<double>(ranks_.size());
  if (!separable_)
    value_ms += kShare * mean(kReady) + kLoadShare * weights_.load_ms * mean(kForwardLoad);
  return value_ms + weights_.moves_ms;
}

}  // namespace neuroshard
