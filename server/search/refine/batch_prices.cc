#include "server/search/refine/batch_prices.h"

#include <algorithm>

#include "common/domain/shard_layout.h"
#include "common/domain/table_names.h"
#include "server/evaluate/batch_imbalance.h"
#include "server/evaluate/lay_out.h"
#include "server/evaluate/rules/row_cuts.h"

namespace neuroshard {

BatchPrices::BatchPrices(const PlanRequest& request, const Plan& plan, const BoundCostModel& model,
                         const StopSignal& stop)
    : model_(model),
      num_ranks_(request.topology.devices.size()),
      width_(static_cast<std::size_t>(model.representation_width())),
      table_of_(TablesOf(plan, request.tables)),
      held_(num_ranks_) {
  ReadShards(request, plan);
  const std::size_t floats = (num_shapes_ + 2 * num_ranks_) * (width_ + 4);
  num_batches_ = std::min(NumBatches(request), kMaxFloats / std::max<std::size_t>(1, floats));
  has_all_batches_ = num_batches_ == NumBatches(request);
  if (num_batches_ == 0) return;
  if (!Represent(request, plan, stop)) {
    num_batches_ = 0;
    return;
  }
  PriceAll();
}

void BatchPrices::ReadShards(const PlanRequest& request, const Plan& plan) {
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const TablePlan& table = plan.tables[t];
    for (std::size_t s = 0; s < table.shards.size(); ++s) {
      const Shard& shard = table.shards[s];
      // Neighbours are often alike: replicas, even cuts.
      const bool as_before =
          s > 0 && shard.rows == table.shards[s - 1].rows && shard.cols == table.shards[s - 1].cols;
      if (!as_before) ++num_shapes_;
      const std::size_t rank = static_cast<std::size_t>(shard.rank);
      held_[rank].push_back(shards_.size());
      shards_.push_back(
          {t, s, num_shapes_ - 1, rank,
           SpreadOf(table.sharding_type) == Spread::kRank && request.topology.num_ranks() > 1});
    }
  }
}

bool BatchPrices::Represent(const PlanRequest& request, const Plan& plan, const StopSignal& stop) {
  const std::size_t shapes_by_batches = num_shapes_ * num_batches_;
  phi_.resize(shapes_by_batches * width_);
  loads_.resize(shapes_by_batches);
  alone_ms_.resize(shapes_by_batches);
  sums_.assign(num_ranks_ * num_batches_ * width_, 0);
  sum_alone_ms_.assign(num_ranks_ * num_batches_, 0);
  kinds_.resize(num_batches_);
  const std::size_t cells = num_ranks_ * num_batches_;
  compute_ms_.assign(cells, 0);
  forward_loads_.assign(cells, 0);
  backward_loads_.assign(cells, 0);
  total_ms_.assign(cells, 0);
  leaders_.resize(num_batches_);

  const std::size_t given = NumBatches(request);
  PlanRequest of_batch = request;
  std::vector<ShardFeatures> features(num_shapes_);
  std::vector<float> phi(num_shapes_ * width_);
  std::vector<CommLoad> loads(num_shapes_);
  const RowCuts row_cuts(request);
  ShardPricer pricer(model_);
  for (std::size_t b = 0; b < num_batches_; ++b) {
    if (stop.ShouldStop()) return false;
    SetBatch(request, b * given / num_batches_, of_batch);
    for (const BatchedShard& s : shards_) {
      const TablePlan& table = plan.tables[s.table];
      const Shard& shard = table.shards[s.shard];
      const int of = table_of_[s.table];
      features[s.shape] = FeaturesOf(of_batch.tables[static_cast<std::size_t>(of)],
                                     LayoutOf(table, row_cuts.of(of)), shard.rows, shard.cols);
    }
    model_.Represent(features, phi, loads);
    const std::span<const double> alone = pricer.Price(features);
    for (std::size_t i = 0; i < num_shapes_; ++i) {
      const std::size_t cell = i * num_batches_ + b;
      std::copy_n(phi.begin() + static_cast<std::ptrdiff_t>(i * width_), width_,
                  phi_.begin() + static_cast<std::ptrdiff_t>(cell * width_));
      loads_[cell] = loads[i];
      alone_ms_[cell] = alone[i];
      kinds_[b] |= loads[i].kinds;
    }
  }
  for (std::size_t s = 0; s < shards_.size(); ++s) Add(s, 1);
  for (std::size_t rank = 0; rank < num_ranks_; ++rank) PriceRank(rank);
  return true;
}

void BatchPrices::Add(std::size_t shard, double sign) {
  const BatchedShard& s = shards_[shard];
  const std::size_t to = s.rank * num_batches_;
  const std::size_t from = s.shape * num_batches_;
  for (std::size_t i = 0; i < num_batches_ * width_; ++i) {
    sums_[to * width_ + i] += sign * static_cast<double>(phi_[from * width_ + i]);
  }
  for (std::size_t b = 0; b < num_batches_; ++b)
    sum_alone_ms_[to + b] += sign * alone_ms_[from + b];
}

void BatchPrices::PriceRank(std::size_t rank) {
  const std::size_t begin = rank * num_batches_;
  rank_sums_.assign(sums_.begin() + static_cast<std::ptrdiff_t>(begin * width_),
                    sums_.begin() + static_cast<std::ptrdiff_t>((begin + num_batches_) * width_));
  rank_costs_.assign(num_batches_, {});
  const std::vector<int> kinds(num_batches_, model_.kind(rank));
  if (!held_[rank].empty()) model_.ComputeCosts(rank_sums_, rank_costs_, kinds);
  for (std::size_t b = 0; b < num_batches_; ++b) {
    CommLoad load;
    for (const std::size_t s : held_[rank]) load += loads_[shards_[s].shape * num_batches_ + b];
    const std::size_t cell = b * num_ranks_ + rank;
    compute_ms_[cell] = rank_costs_[b].total_ms * model_.compute_scale(rank);
    forward_loads_[cell] = load.forward;
    backward_loads_[cell] = load.backward;
  }
}

void BatchPrices::PriceAll() {
  PricePlacements(model_, compute_ms_, forward_loads_, backward_loads_, prices_, kinds_);
  mean_ms_ = 0;
  for (const double ms : prices_.cost_ms) mean_ms_ += ms / static_cast<double>(num_batches_);
  for (std::size_t i = 0; i < total_ms_.size(); ++i) {
    total_ms_[i] = static_cast<double>(compute_ms_[i]) + prices_.backward_comm_ms[i] +
                   prices_.forward_comm_ms[i];
  }
  SetLeaders();
}

void BatchPrices::SetLeaders() {
  batches_led_.assign(num_ranks_, 0);
  for (std::size_t b = 0; b < num_batches_; ++b) {
    std::array<Leader, 3> leaders = {};
    for (std::size_t rank = 0; rank < num_ranks_; ++rank) {
      Leader next = {rank, total_ms_[b * num_ranks_ + rank]};
      for (Leader& leader : leaders) {
        if (next.ms > leader.ms) std::swap(next, leader);
      }
    }
    leaders_[b] = leaders;
    ++batches_led_[leaders.front().rank];
  }
}

double BatchPrices::Estimate(const BatchMove& move) const {
  const BatchedShard& moved = shards_[move.moved];
  const std::size_t from = moved.rank;
  double sum_ms = 0;
  for (std::size_t b = 0; b < num_batches_; ++b) {
    const double moved_ms = alone_ms_[moved.shape * num_batches_ + b];
    const double back_ms =
        move.back == BatchMove::kNone ? 0 : alone_ms_[shards_[move.back].shape * num_batches_ + b];
    const auto after = [&](std::size_t rank, double change_ms) {
      const double ms = total_ms_[b * num_ranks_ + rank];
      const double alone = sum_alone_ms_[rank * num_batches_ + b];
      return alone > 0 && !held_[rank].empty() ? ms + change_ms * ms / alone : ms + change_ms;
    };
    double cost_ms = std::max(after(from, back_ms - moved_ms), after(move.to, moved_ms - back_ms));
    for (const Leader& leader : leaders_[b]) {
      if (leader.rank == from || leader.rank == move.to) continue;
      cost_ms = std::max(cost_ms, leader.ms);
      break;
    }
    sum_ms += cost_ms;
  }
  return sum_ms / static_cast<double>(num_batches_);
}

BatchMove BatchPrices::Apply(const BatchMove& move) {
  const std::size_t from = shards_[move.moved].rank;
  const auto carry = [&](std::size_t shard, std::size_t to) {
    Add(shard, -1);
    std::erase(held_[shards_[shard].rank], shard);
    shards_[shard].rank = to;
    held_[to].insert(std::lower_bound(held_[to].begin(), held_[to].end(), shard), shard);
    Add(shard, 1);
  };
  carry(move.moved, move.to);
  if (move.back != BatchMove::kNone) carry(move.back, from);
  PriceRank(from);
  PriceRank(move.to);
  PriceAll();
  return {move.moved, move.back, from};
}

}  // namespace neuroshard
