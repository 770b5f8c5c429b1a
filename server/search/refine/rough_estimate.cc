#include "server/search/refine/rough_estimate.h"

#include <cstddef>

namespace neuroshard {

double RoughEstimate::Of(const Solution& solution, const ExchangePricer& pricer,
                         std::span<const int> leaving, std::span<const Unit> coming) {
  shifts_.clear();
  shift_of_rank_.resize(static_cast<std::size_t>(solution.num_ranks()), -1);
  for (const int id : leaving) Change(solution, pricer.outlook(), solution.unit(id), -1);
  for (const Unit& unit : coming) Change(solution, pricer.outlook(), unit, 1);
  shifted_.clear();
  for (const RankShift& shift : shifts_) {
    shift_of_rank_[static_cast<std::size_t>(shift.rank)] = -1;
    shifted_.push_back(shift.rank);
  }
  return pricer.outlook().Estimate(shifts_, pricer.outlook().OthersThan(shifted_),
                                   pricer.surrogate());
}

double RoughEstimate::ShareOf(const Solution& solution, const ExchangePricer& pricer, int rank,
                              int shard) const {
  const CommSurrogate& c = pricer.surrogate();
  const CommLoad& load = book_.load(shard);
  return ComputeOf(solution, pricer.outlook(), rank, shard) +
         static_cast<double>(load.forward) * c.forward_own +
         static_cast<double>(load.backward) * c.backward_own;
}

double RoughEstimate::ComputeOf(const Solution& solution, const Outlook& outlook, int rank,
                                int shard) const {
  const double alone_ms = solution.rank(rank).single_costs_ms;
  const double share = alone_ms > 0 ? outlook.rank(rank).compute_ms / alone_ms : 1.0;
  return share * static_cast<double>(book_.single_cost_ms(shard));
}

void RoughEstimate::Change(const Solution& solution, const Outlook& outlook, const Unit& unit,
                           int sign) {
  for (int i = 0; i < unit.shards.count; ++i) {
    const int rank = solution.RankOf(unit, i);
    int& index = shift_of_rank_[static_cast<std::size_t>(rank)];
    if (index < 0) {
      index = static_cast<int>(shifts_.size());
      const RankStanding& now = outlook.rank(rank);
      shifts_.push_back({rank, now.compute_ms, now.forward_load, now.backward_load});
    }
    RankShift& shift = shifts_[static_cast<std::size_t>(index)];
    const int shard = unit.shards.at(i);
    shift.compute_ms += sign * ComputeOf(solution, outlook, rank, shard);
    shift.forward_load += sign * static_cast<double>(book_.load(shard).forward);
    shift.backward_load += sign * static_cast<double>(book_.load(shard).backward);
  }
}

}  // namespace neuroshard
