#include "server/search/refine/outlook.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace neuroshard {
namespace {

// Share of the power means in the potential: below what one exchange usually gains, so that it
// decides between equals.
constexpr double kShare = 0.05;

double Power16(double x) {
  x *= x;
  x *= x;
  x *= x;
  return x * x;
}

}  // namespace

double Outlook::Of(const RankStanding& rank, int measure) {
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

void Outlook::Reset(std::span<const RankStanding> ranks, bool separable, double load_price_ms) {
  ranks_.assign(ranks.begin(), ranks.end());
  separable_ = separable;
  load_price_ms_ = load_price_ms;
  const double count = static_cast<double>(ranks_.size());
  for (int m = 0; m < kMeasures; ++m) {
    std::vector<int>& leaders = leaders_[static_cast<std::size_t>(m)];
    leaders.resize(ranks_.size());
    std::iota(leaders.begin(), leaders.end(), 0);
    const std::size_t kept = std::min(kLeaders, leaders.size());
    std::partial_sort(leaders.begin(), leaders.begin() + static_cast<std::ptrdiff_t>(kept),
                      leaders.end(), [&](int a, int b) {
                        const double of_a = Of(rank(a), m);
                        const double of_b = Of(rank(b), m);
                        return of_a != of_b ? of_a > of_b : a < b;
                      });
    leaders.resize(kept);
    const double largest = std::max(Of(rank(leaders.front()), m), 1e-12);
    double sum = 0;
    for (const RankStanding& r : ranks_) sum += Power16(Of(r, m) / largest);
    largest_[static_cast<std::size_t>(m)] = largest;
    power_sums_[static_cast<std::size_t>(m)] = sum;
    power_means_[static_cast<std::size_t>(m)] = largest * std::pow(sum / count, 1.0 / 16);
  }
  cost_ms_ = largest_[kTotal];
  potential_ms_ = cost_ms_ + kShare * power_means_[kTotal];
  if (!separable_) {
    potential_ms_ += kShare * (power_means_[kReady] + load_price_ms_ * power_means_[kForwardLoad]);
  }
}

double Outlook::LargestOfOthers(int measure, std::span<const RankShift> shifts) const {
  for (const int leader : leaders_[static_cast<std::size_t>(measure)]) {
    if (std::none_of(shifts.begin(), shifts.end(),
                     [&](const RankShift& shift) { return shift.rank == leader; })) {
      return Of(rank(leader), measure);
    }
  }
  if (leaders_[static_cast<std::size_t>(measure)].size() == ranks_.size()) return 0;
  // More shifts than leaders: no rank below them is higher than the last one.
  return Of(rank(leaders_[static_cast<std::size_t>(measure)].back()), measure);
}

double Outlook::Estimate(std::span<const RankShift> shifts,
                         const CommResponse::Coefficients& response) const {
  double forward_largest = 0;
  double backward_largest = 0;
  double others_ready = 0;
  double largest_forward_change = 0;
  double largest_backward_change = 0;
  if (!separable_) {
    forward_largest = LargestOfOthers(kForwardLoad, shifts);
    backward_largest = LargestOfOthers(kBackwardLoad, shifts);
    for (const RankShift& shift : shifts) {
      forward_largest = std::max(forward_largest, shift.forward_load);
      backward_largest = std::max(backward_largest, shift.backward_load);
    }
    largest_forward_change = response.forward_largest * (forward_largest - largest_[kForwardLoad]);
    largest_backward_change =
        response.backward_largest * (backward_largest - largest_[kBackwardLoad]);
    others_ready = LargestOfOthers(kReady, shifts) + largest_backward_change;
  }
  // First when everybody is ready, then how long the shifted ranks wait for that.
  double last_ready = others_ready;
  double ready_power = power_sums_[kReady];
  for (const RankShift& shift : shifts) {
    const RankStanding& now = rank(shift.rank);
    const double ready = shift.compute_ms + now.backward_ms + largest_backward_change +
                         response.backward_own * (shift.backward_load - now.backward_load);
    last_ready = std::max(last_ready, ready);
    if (!separable_) {
      ready_power += Power16(ready / largest_[kReady]) - Power16(now.ready_ms() / largest_[kReady]);
    }
  }
  const double last_ready_change = separable_ ? 0 : last_ready - largest_[kReady];
  // A rank that is not shifted is ready as before but for the largest load's part.
  const double others_change =
      separable_ ? 0
                 : largest_backward_change + largest_forward_change +
                       response.forward_wait * (last_ready_change - largest_backward_change);
  double cost_ms = LargestOfOthers(kTotal, shifts) + others_change;
  double total_power = power_sums_[kTotal];
  double load_power = power_sums_[kForwardLoad];
  for (const RankShift& shift : shifts) {
    const RankStanding& now = rank(shift.rank);
    const double ready = shift.compute_ms + now.backward_ms + largest_backward_change +
                         response.backward_own * (shift.backward_load - now.backward_load);
    const double ready_change = ready - now.ready_ms();
    double total = ready + now.forward_ms + largest_forward_change +
                   response.forward_own * (shift.forward_load - now.forward_load);
    if (!separable_) total += response.forward_wait * (last_ready_change - ready_change);
    cost_ms = std::max(cost_ms, total);
    total_power += Power16((total - others_change) / largest_[kTotal]) -
                   Power16(now.total_ms() / largest_[kTotal]);
    if (!separable_) {
      load_power += Power16(shift.forward_load / largest_[kForwardLoad]) -
                    Power16(now.forward_load / largest_[kForwardLoad]);
    }
  }
  // Power means to first order.
  const auto mean = [&](Measure measure, double power) {
    const std::size_t m = static_cast<std::size_t>(measure);
    return power_means_[m] * (1 + (power / power_sums_[m] - 1) / 16);
  };
  double potential = cost_ms + kShare * (mean(kTotal, total_power) + others_change);
  if (!separable_) {
    potential +=
        kShare * (mean(kReady, ready_power) + load_price_ms_ * mean(kForwardLoad, load_power));
  }
  return potential;
}

}  // namespace neuroshard
