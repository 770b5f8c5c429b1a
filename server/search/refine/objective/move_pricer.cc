#include "server/search/refine/objective/move_pricer.h"

#include <algorithm>
#include <cmath>

namespace neuroshard {
namespace {

// Communication networks grow with the square of the ranks: this many cells a batch.
constexpr std::size_t kBatchCells = std::size_t{1} << 18;
constexpr std::size_t kLargestBatch = 32;
// Estimates are far from what networks predict: where few ranks make that cheap, the best of many
// moves is worth more than the next steps.
constexpr std::size_t kLargestBatchOfFewRanks = 128;
constexpr std::size_t kFewRanks = 8;
constexpr std::size_t kSmallestBatch = 4;
// Communication that is a sum is estimated right: what follows the best estimate is there for
// ties.
constexpr std::size_t kSeparableBatch = 8;

// Contents of ranks whose costs are remembered.
constexpr std::size_t kMaxContents = 1U << 20;

// What a millisecond of mean compute is worth beside one of cost where all ranks are even, and how
// quickly work that is no rank's own concern loses that as they stand more unevenly.
constexpr double kWorkWeight = 3;
constexpr double kEvennessPower = 16;

std::size_t BatchSize(const ModelProperties& model, std::size_t num_ranks) {
  if (model.separable_comm) return kSeparableBatch;
  return std::clamp(kBatchCells / (num_ranks * num_ranks), kSmallestBatch,
                    num_ranks <= kFewRanks ? kLargestBatchOfFewRanks : kLargestBatch);
}

}  // namespace

MovePricer::MovePricer(SearchContext& context, ShardTable& shard_table, Solution& solution)
    : context_(context),
      shard_table_(shard_table),
      solution_(solution),
      costs_(context, shard_table.width(), kMaxContents),
      separable_(context.model().properties().separable_comm),
      num_ranks_(context.request().topology.devices.size()),
      batch_size_(BatchSize(context.model().properties(), num_ranks_)),
      prices_ranks_alone_(separable_ || context.model().properties().comm_run_a_rank),
      touched_of_rank_(num_ranks_, -1) {
  FitSurrogate();
  objective_.Reset(std::vector<RankPrice>(num_ranks_), separable_, weights_);
}

template <typename Fill>
MovePricer::Slot MovePricer::FindOrQueue(int rank, const Solution::Rank& changed,
                                         const Fill& fill) {
  if (changed.shards == 0) return RankCostCache::kEmptyRank;
  if (context_.model().properties().additive_compute) {
    return costs_.AddKnown(static_cast<float>(changed.shard_costs_ms));
  }
  return costs_.Find(changed.content, context_.model().kind(static_cast<std::size_t>(rank)), fill);
}

MovePricer::Slot MovePricer::FindCost(int rank, int without, int with) {
  Solution::Rank changed = solution_.rank(rank);
  if (without >= 0) changed.Count(shard_table_, rank, without, -1);
  if (with >= 0) changed.Count(shard_table_, rank, with, 1);
  return FindOrQueue(rank, changed, [&](std::span<float> row) {
    const double* const sum = solution_.sum(rank);
    const float* const less = without >= 0 ? shard_table_.phi(without) : nullptr;
    const float* const more = with >= 0 ? shard_table_.phi(with) : nullptr;
    for (std::size_t w = 0; w < row.size(); ++w) {
      double value = sum[w];
      if (less != nullptr) value -= static_cast<double>(less[w]);
      if (more != nullptr) value += static_cast<double>(more[w]);
      row[w] = static_cast<float>(value);
    }
  });
}

MovePricer::Slot MovePricer::FindCost(int rank, const Solution::Rank& changed,
                                      const double* added) {
  return FindOrQueue(rank, changed, [&](std::span<float> row) {
    const double* const sum = solution_.sum(rank);
    for (std::size_t w = 0; w < row.size(); ++w) row[w] = static_cast<float>(sum[w] + added[w]);
  });
}

void MovePricer::TrimCosts() {
  if (context_.model().properties().additive_compute) {
    costs_.Clear();
  } else {
    costs_.TrimIfLarge();
  }
}

// Around every table uncut and all ranks alike.
void MovePricer::FitSurrogate() {
  const PlanRequest& request = context_.request();
  double forward_load = 0;
  double backward_load = 0;
  std::vector<int> shards;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    const Table& table = request.tables[t];
    shards.push_back(
        shard_table_.Shards(static_cast<int>(t), ShardingType::kTableWise, table.embedding_dim, 1)
            .full);
  }
  shard_table_.PredictNew();
  for (const int shard : shards) {
    forward_load += static_cast<double>(shard_table_.load(shard).forward);
    backward_load += static_cast<double>(shard_table_.load(shard).backward);
  }
  const double ranks = static_cast<double>(num_ranks_);
  surrogate_ = ProbeComm(context_.model(), forward_load / ranks, backward_load / ranks);
  weights_.load_ms =
      surrogate_.forward_largest + surrogate_.backward_largest + surrogate_.forward_own;
}

void MovePricer::PriceSolution() {
  BeginTrials(1);
  priced_[0] = {.allowed = true, .moves_ms = solution_.MovesMs()};
  kinds_.push_back(solution_.kinds());
  for (int r = 0; r < solution_.num_ranks(); ++r) {
    Solution::Rank rank = solution_.rank(r);
    // As PricePlan has them.
    rank.forward_load = static_cast<float>(rank.forward_load);
    rank.backward_load = static_cast<float>(rank.backward_load);
    touched_.push_back({r, rank, 0});
  }
  sum_changes_.resize(num_ranks_ * shard_table_.width(), 0.0);
  touched_end_.push_back(touched_.size());
  PriceTrials();
  Adopt(0);
}

std::span<const MovePricer::Priced> MovePricer::Price(const MoveList& list,
                                                      std::span<const Move> moves) {
  BeginTrials(moves.size());
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const auto removed = list.removed(moves[i]);
    const auto added = list.added(moves[i]);
    priced_[i].allowed = solution_.Allows(removed, added);
    if (priced_[i].allowed) {
      priced_[i].moves_ms = solution_.MovesMs(removed, added);
      Collect(removed, added);
      kinds_.push_back(solution_.KindsAfter(removed, added));
    }
    touched_end_.push_back(touched_.size());
  }
  PriceTrials();
  return priced_;
}

void MovePricer::BeginTrials(std::size_t count) {
  TrimCosts();
  touched_.clear();
  touched_end_.assign(1, 0);
  sum_changes_.clear();
  priced_.assign(count, {});
  kinds_.clear();
}

void MovePricer::PriceTrials() {
  for (std::size_t t = 0; t < touched_.size(); ++t) {
    touched_[t].slot = FindCost(touched_[t].rank, touched_[t].changed,
                                sum_changes_.data() + t * shard_table_.width());
  }
  PredictCosts();
  const auto trials = std::ranges::count(priced_, true, &Priced::allowed);
  context_.AddWork(Work::kRankPrice, static_cast<std::size_t>(trials) * num_ranks_);
  context_.statistics().plans_evaluated += trials;
  if (separable_) {
    PriceSeparately();
  } else {
    PriceTogether();
  }
  for (std::size_t i = 0; i < priced_.size(); ++i) {
    if (!priced_[i].allowed) continue;
    RankPricesAfter(i, trial_prices_);
    Objective::Weights weights = weights_;
    weights.moves_ms = priced_[i].moves_ms;
    const Objective::Value value = Objective::Evaluate(trial_prices_, separable_, weights);
    priced_[i].cost_ms = value.cost_ms;
    priced_[i].value_ms = value.value_ms;
  }
}

void MovePricer::Collect(std::span<const int> removed, std::span<const Unit> added) {
  const std::size_t begin = touched_.size();
  for (const int id : removed) Touch(solution_.unit(id), -1, begin);
  for (const Unit& unit : added) Touch(unit, 1, begin);
  for (std::size_t t = begin; t < touched_.size(); ++t) {
    touched_of_rank_[static_cast<std::size_t>(touched_[t].rank)] = -1;
  }
}

void MovePricer::Touch(const Unit& unit, int sign, std::size_t begin) {
  const std::size_t width = shard_table_.width();
  solution_.ForEachShard(unit, [&](int r, int shard) {
    int& index = touched_of_rank_[static_cast<std::size_t>(r)];
    if (index < static_cast<int>(begin)) {
      index = static_cast<int>(touched_.size());
      touched_.push_back({r, solution_.rank(r), 0});
      sum_changes_.resize(touched_.size() * width, 0.0);
    }
    touched_[static_cast<std::size_t>(index)].changed.Count(shard_table_, r, shard, sign);
    double* const added = sum_changes_.data() + static_cast<std::size_t>(index) * width;
    const float* const phi = shard_table_.phi(shard);
    for (std::size_t w = 0; w < width; ++w) added[w] += sign * static_cast<double>(phi[w]);
  });
}

void MovePricer::PriceTogether() {
  compute_ms_.clear();
  forward_loads_.clear();
  backward_loads_.clear();
  row_of_trial_.resize(priced_.size());
  std::size_t rows = 0;
  for (std::size_t i = 0; i < priced_.size(); ++i) {
    if (!priced_[i].allowed) continue;
    row_of_trial_[i] = rows;
    const std::size_t begin = rows++ * num_ranks_;
    for (const RankPrice& price : rank_prices()) {
      compute_ms_.push_back(static_cast<float>(price.compute_ms));
      forward_loads_.push_back(static_cast<float>(price.forward_load));
      backward_loads_.push_back(static_cast<float>(price.backward_load));
    }
    for (const Touched& t : touched(i)) {
      const std::size_t cell = begin + static_cast<std::size_t>(t.rank);
      compute_ms_[cell] = compute_ms(t.rank, t.slot);
      forward_loads_[cell] = static_cast<float>(t.changed.forward_load);
      backward_loads_[cell] = static_cast<float>(t.changed.backward_load);
    }
  }
  PricePlacements(context_.model(), compute_ms_, forward_loads_, backward_loads_, prices_, kinds_);
}

// Only the touched ranks, one cell each: a rank's price depends on its own load alone.
void MovePricer::PriceSeparately() {
  const std::size_t cells = (touched_.size() + num_ranks_ - 1) / num_ranks_ * num_ranks_;
  forward_loads_.assign(cells, 0.0F);
  backward_loads_.assign(cells, 0.0F);
  for (std::size_t t = 0; t < touched_.size(); ++t) {
    forward_loads_[t] = static_cast<float>(touched_[t].changed.forward_load);
    backward_loads_[t] = static_cast<float>(touched_[t].changed.backward_load);
  }
  prices_.backward_comm_ms.resize(cells);
  prices_.forward_comm_ms.resize(cells);
  compute_ms_.assign(cells, 0.0F);  // stands in for start offsets, which do not count
  if (cells > 0) {
    context_.model().comm().BackwardCosts(backward_loads_, prices_.backward_comm_ms);
    context_.model().comm().ForwardCosts(forward_loads_, compute_ms_, prices_.forward_comm_ms);
  }
}

void MovePricer::RankPricesAfter(std::size_t trial, std::vector<RankPrice>& rank_prices) const {
  rank_prices = objective_.ranks();
  for (std::size_t t = touched_end_[trial]; t < touched_end_[trial + 1]; ++t) {
    RankPrice& price = rank_prices[static_cast<std::size_t>(touched_[t].rank)];
    price.compute_ms = compute_ms(touched_[t].rank, touched_[t].slot);
    price.forward_load = touched_[t].changed.forward_load;
    price.backward_load = touched_[t].changed.backward_load;
    if (separable_) {
      price.backward_ms = prices_.backward_comm_ms[t];
      price.forward_ms = prices_.forward_comm_ms[t];
    }
  }
  if (separable_) return;
  for (std::size_t r = 0; r < num_ranks_; ++r) {
    const std::size_t cell = row_of_trial_[trial] * num_ranks_ + r;
    rank_prices[r].backward_ms = prices_.backward_comm_ms[cell];
    rank_prices[r].forward_ms = prices_.forward_comm_ms[cell];
  }
}

void MovePricer::Adopt(std::size_t index) {
  RankPricesAfter(index, trial_prices_);
  SetRankPrices(trial_prices_, priced_[index].moves_ms);
}

void MovePricer::WeighWork() {
  double sum_ms = 0;
  double most_ms = 0;
  for (const RankPrice& price : rank_prices()) {
    sum_ms += price.compute_ms;
    most_ms = std::max(most_ms, price.compute_ms);
  }
  const double evenness = most_ms > 0 ? sum_ms / static_cast<double>(num_ranks_) / most_ms : 0;
  weights_.work = kWorkWeight * std::pow(evenness, kEvennessPower);
  // A copy, since these prices are the objective's own.
  objective_.Reset(std::vector(rank_prices()), separable_, weights_);
}

void MovePricer::SetRankPrices(const std::vector<RankPrice>& rank_prices, double moves_ms) {
  weights_.moves_ms = moves_ms;
  objective_.Reset(rank_prices, separable_, weights_);
}

double MovePricer::Estimate(std::span<const int> removed, std::span<const Unit> added) {
  changes_.clear();
  change_of_rank_.resize(static_cast<std::size_t>(solution_.num_ranks()), -1);
  for (const int id : removed) CountChange(solution_.unit(id), -1);
  for (const Unit& unit : added) CountChange(unit, 1);
  changed_ranks_.clear();
  for (const RankChange& change : changes_) {
    change_of_rank_[static_cast<std::size_t>(change.rank)] = -1;
    changed_ranks_.push_back(change.rank);
  }
  return objective_.Estimate(changes_, objective_.LargestExcept(changed_ranks_), surrogate_);
}

double MovePricer::ShareOf(int rank, int shard) const {
  const CommLoad& load = shard_table_.load(shard);
  return ComputeOf(rank, shard) + static_cast<double>(load.forward) * surrogate_.forward_own +
         static_cast<double>(load.backward) * surrogate_.backward_own;
}

void MovePricer::CostliestTables(int rank, std::size_t most,
                                 absl::FunctionRef<bool(int table)> takes,
                                 std::vector<int>& tables) {
  by_share_.clear();
  solution_.ForEachShardOn(rank, [&](int id, int shard) {
    by_share_.emplace_back(-ShareOf(rank, shard), solution_.unit(id).table);
  });
  std::ranges::sort(by_share_);
  tables.clear();
  for (const auto& [share, table] : by_share_) {
    if (tables.size() == most) break;
    if (takes(table) && std::ranges::find(tables, table) == tables.end()) {
      tables.push_back(table);
    }
  }
}

double MovePricer::ComputeOf(int rank, int shard) const {
  return compute_scale(rank) * static_cast<double>(shard_table_.shard_cost_ms(shard, rank));
}

void MovePricer::CountChange(const Unit& unit, int sign) {
  solution_.ForEachShard(unit, [&](int rank, int shard) {
    int& index = change_of_rank_[static_cast<std::size_t>(rank)];
    if (index < 0) {
      index = static_cast<int>(changes_.size());
      const RankPrice& now = objective_.rank(rank);
      changes_.push_back({rank, now.compute_ms, now.forward_load, now.backward_load});
    }
    RankChange& change = changes_[static_cast<std::size_t>(index)];
    change.compute_ms += sign * ComputeOf(rank, shard);
    change.forward_load += sign * static_cast<double>(shard_table_.load(shard).forward);
    change.backward_load += sign * static_cast<double>(shard_table_.load(shard).backward);
  });
}

}  // namespace neuroshard
