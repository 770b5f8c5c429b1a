// What any exchange is about to lead to, without a prediction for it.
#pragma once

#include <span>
#include <vector>

#include "server/search/refine/exchange_pricer.h"
#include "server/search/refine/outlook.h"
#include "server/search/refine/shard_book.h"
#include "server/search/refine/solution.h"

namespace neuroshard {

// Takes a shard to change its rank's compute by its cost alone, times what the rank costs per sum
// of its shards' costs alone: right for models with additive compute.
class RoughEstimate {
 public:
  // `book` must outlive it.
  explicit RoughEstimate(const ShardBook& book) : book_(book) {}

  double Of(const Solution& solution, const ExchangePricer& pricer, std::span<const int> leaving,
            std::span<const Unit> coming);

  // What a shard would add to the total of a rank, likewise.
  double ShareOf(const Solution& solution, const ExchangePricer& pricer, int rank, int shard) const;

 private:
  double ComputeOf(const Solution& solution, const Outlook& outlook, int rank, int shard) const;
  void Change(const Solution& solution, const Outlook& outlook, const Unit& unit, int sign);

  const ShardBook& book_;
  std::vector<RankShift> shifts_;
  std::vector<int> shift_of_rank_;  // -1 between calls
  std::vector<int> shifted_;
};

}  // namespace neuroshard
