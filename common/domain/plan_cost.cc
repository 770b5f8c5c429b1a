#include "common/domain/plan_cost.h"

#include <algorithm>
#include <cmath>

namespace neuroshard {
namespace {

// P(Z <= z) of a standard normal Z.
double NormalShareBelow(double z) { return std::erfc(-z / std::sqrt(2.0)) / 2; }

// The x in [low, high] where a rising `share_below` reaches `share`.
template <typename F>
double Quantile(double low, double high, double share, const F& share_below) {
  for (int step = 0; step < 60; ++step) {
    const double middle = low + (high - low) / 2;
    (share_below(middle) < share ? low : high) = middle;
  }
  return high;
}

}  // namespace

std::optional<CostInterval> TotalInterval(const RankCost& rank) {
  const RankIntervals& of = rank.intervals;
  if (!of.compute || !of.backward_comm || !of.forward_comm) return std::nullopt;
  const double comm_ms = rank.backward_comm_ms + rank.forward_comm_ms;
  double link_down = comm_ms - of.backward_comm->low_ms - of.forward_comm->low_ms;
  double link_up = of.backward_comm->high_ms + of.forward_comm->high_ms - comm_ms;
  if (of.input_dist && rank.input_dist_ms && !rank.input_dist_hidden) {
    link_down += *rank.input_dist_ms - of.input_dist->low_ms;
    link_up += of.input_dist->high_ms - *rank.input_dist_ms;
  }
  const double down = std::hypot(rank.compute_ms - of.compute->low_ms, link_down);
  const double up = std::hypot(of.compute->high_ms - rank.compute_ms, link_up);
  return CostInterval{std::max(0.0, rank.total_ms() - down), rank.total_ms() + up};
}

std::optional<CostInterval> EmbeddingCostInterval(std::span<const RankCost> ranks,
                                                  double coverage) {
  if (ranks.empty()) return std::nullopt;
  CostInterval largest;
  double furthest_up = 0;
  for (const RankCost& rank : ranks) {
    if (!rank.intervals.total) return std::nullopt;
    largest.low_ms = std::max(largest.low_ms, rank.intervals.total->low_ms);
    largest.high_ms = std::max(largest.high_ms, rank.intervals.total->high_ms);
    furthest_up = std::max(furthest_up, rank.intervals.total->high_ms - rank.total_ms());
  }
  const double share = (1 + coverage) / 2;
  const double z = Quantile(0, 40, share, NormalShareBelow);
  const auto all_below = [&](double ms) {
    double product = 1;
    for (const RankCost& rank : ranks) {
      const double deviation_ms = (rank.intervals.total->high_ms - rank.total_ms()) / z;
      // A rank without a width is below its cost's value for certain.
      if (deviation_ms > 0) product *= NormalShareBelow((ms - rank.total_ms()) / deviation_ms);
    }
    return product;
  };
  // Eight times the distance that one rank alone needs is more than a million ranks need.
  const double high_ms =
      Quantile(largest.high_ms, largest.high_ms + 8 * furthest_up, share, all_below);
  return CostInterval{largest.low_ms, high_ms};
}

}  // namespace neuroshard
