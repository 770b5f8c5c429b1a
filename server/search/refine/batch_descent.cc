#include "server/search/refine/batch_descent.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/positions.h"
#include "common/base/random.h"
#include "common/domain/memory_use.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table_names.h"
#include "server/evaluate/batch_imbalance.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/migration_report.h"
#include "server/search/placement/placement.h"
#include "server/search/refine/batch_prices.h"
#include "server/search/refine/solution/unit.h"

namespace neuroshard {
namespace {

constexpr int kSources = 3;               // ranks whose shards move
constexpr std::size_t kMovesPriced = 8;   // moves of a step that are priced, by estimate
constexpr int kFruitlessRounds = 20;      // of random moves and descent
constexpr int kRandomMoves = 3;           // at most, between two descents
constexpr double kLeastBatchGain = 1e-7;  // of the objective: less is rounding
// A gain is sure if it is more than what sums in doubles here and in floats in PricePlan differ by.
constexpr double kSureGain = 1e-4;

// What a plan with this mean costs, price of what it moves included.
double WithMigration(const PlanRequest& request, const Plan& plan, double mean_ms) {
  PlanCost cost;
  cost.embedding_cost_ms = mean_ms;
  return CostWithMigration(request, plan, cost);
}

struct Descended {
  Plan plan;
  std::size_t num_shards = 0;
  // By the descent's own prices, in all batches and by more than rounding: where there is no time
  // to price both plans once more.
  bool surely_cheaper = false;
};

class BatchDescent {
 public:
  explicit BatchDescent(SearchContext& context)
      : context_(context),
        request_(context.request()),
        plan_(context.best_plan()),
        prices_(request_, plan_, context.model(), context.stop()),
        room_(AvailableBytes(request_)),
        random_(request_.search.seed.value_or(0)),
        steps_left_(
            request_.search.refine_steps.value_or(std::numeric_limits<std::int64_t>::max())) {
    const std::vector<int> table_of = TablesOf(plan_, request_.tables);
    const RowCuts row_cuts(request_);
    for (const BatchedShard& s : prices_.shards()) {
      const TablePlan& table = plan_.tables[s.table];
      const Shard& shard = table.shards[s.shard];
      const int of = table_of[s.table];
      bytes_.push_back(ShardMemory(request_, request_.tables[static_cast<std::size_t>(of)],
                                   LayoutOf(table, row_cuts.of(of)), shard.rows, shard.cols)
                           .total_bytes());
      room_[s.rank] -= bytes_.back();
      if (s.movable) movable_.push_back(bytes_.size() - 1);
    }
  }

  // The best plan found; none if that is the first one.
  std::optional<Descended> Run() {
    if (prices_.num_batches() == 0 || movable_.empty()) return std::nullopt;
    const double first_ms = ObjectiveMs();
    double best_ms = first_ms;
    Plan best = plan_;
    std::vector<std::size_t> best_ranks = Ranks();
    for (int fruitless = 0; fruitless <= kFruitlessRounds; ++fruitless) {
      while (Step()) {
      }
      if (const double ms = ObjectiveMs(); ms < best_ms * (1 - kLeastBatchGain)) {
        best_ms = ms;
        best = plan_;
        best_ranks = Ranks();
        fruitless = 0;
      } else if (context_.ShouldStop()) {
        break;
      } else {
        GoTo(best_ranks);
      }
      if (Ended()) break;
      context_.ReportProgress(0.5 + 0.5 * fruitless / kFruitlessRounds);
      Perturb();
    }
    if (best_ms >= first_ms) return std::nullopt;
    const bool surely = prices_.has_all_batches() && best_ms < first_ms * (1 - kSureGain);
    return Descended{std::move(best), bytes_.size(), surely};
  }

 private:
  struct Candidate {
    double estimate_ms;
    BatchMove move;
  };

  bool Ended() { return steps_left_ <= 0 || context_.WorkSpent() || context_.ShouldStop(); }

  double ObjectiveMs() const { return WithMigration(request_, plan_, prices_.mean_ms()); }

  // Ranks that are costliest in most batches, and so those from which a move can gain.
  std::vector<std::size_t> Sources() const {
    const std::vector<int>& led = prices_.batches_led();
    std::vector<std::size_t> sources;
    for (const std::size_t rank :
         PositionsDescending(led.size(), [&](std::size_t r) { return led[r]; })) {
      if (led[rank] > 0 && sources.size() < kSources) sources.push_back(rank);
    }
    return sources;
  }

  bool HasRoom(const BatchMove& move) const {
    const std::size_t from = prices_.shards()[move.moved].rank;
    const std::int64_t back = move.back == BatchMove::kNone ? 0 : bytes_[move.back];
    return from != move.to && room_[move.to] + back >= bytes_[move.moved] &&
           room_[from] + bytes_[move.moved] >= back;
  }

  void Consider(const BatchMove& move) {
    if (!HasRoom(move)) return;
    const double estimate_ms = prices_.Estimate(move);
    if (candidates_.size() == kMovesPriced && estimate_ms >= candidates_.back().estimate_ms) return;
    const auto at = std::upper_bound(
        candidates_.begin(), candidates_.end(), estimate_ms,
        [](double ms, const Candidate& candidate) { return ms < candidate.estimate_ms; });
    candidates_.insert(at, {estimate_ms, move});
    if (candidates_.size() > kMovesPriced) candidates_.pop_back();
  }

  // The first of the most promising moves that gains. False: none does, or the search has ended.
  bool Step() {
    if (Ended()) return false;
    --steps_left_;
    candidates_.clear();
    for (const std::size_t source : Sources()) {
      for (const std::size_t moved : prices_.held(source)) {
        if (!prices_.shards()[moved].movable) continue;
        if (context_.ShouldStop()) return false;
        if (context_.WorkSpent()) break;  // of what was found, the best may gain
        for (std::size_t to = 0; to < room_.size(); ++to) {
          Consider({moved, BatchMove::kNone, to});
        }
        for (const std::size_t back : movable_) {
          Consider({moved, back, prices_.shards()[back].rank});
        }
        context_.AddWork(Work::kEstimate,
                         (room_.size() + movable_.size()) * (1 + prices_.num_batches() / 8));
      }
    }
    const double before_ms = ObjectiveMs();
    for (const Candidate& candidate : candidates_) {
      const BatchMove reverse = CarryOut(candidate.move);
      if (ObjectiveMs() < before_ms * (1 - kLeastBatchGain) && IsLegal()) return true;
      CarryOut(reverse);
      if (context_.ShouldStop()) return false;
    }
    return false;
  }

  bool IsLegal() {
    context_.AddWork(Work::kConstruction, 8 * bytes_.size());
    return CheckPlan(request_, plan_).empty();
  }

  BatchMove CarryOut(const BatchMove& move) {
    const std::size_t from = prices_.shards()[move.moved].rank;
    const std::int64_t back = move.back == BatchMove::kNone ? 0 : bytes_[move.back];
    room_[from] += bytes_[move.moved] - back;
    room_[move.to] += back - bytes_[move.moved];
    const BatchMove reverse = prices_.Apply(move);
    for (const std::size_t shard : {move.moved, move.back}) {
      if (shard == BatchMove::kNone) continue;
      const BatchedShard& s = prices_.shards()[shard];
      plan_.tables[s.table].shards[s.shard].rank = static_cast<int>(s.rank);
    }
    context_.AddWork(Work::kComputeCost, 2 * prices_.num_batches());
    context_.AddWork(Work::kRankPrice, room_.size() * prices_.num_batches());
    context_.statistics().compute_evaluations +=
        static_cast<std::int64_t>(2 * prices_.num_batches());
    ++context_.statistics().plans_evaluated;
    return reverse;
  }

  std::vector<std::size_t> Ranks() const {
    std::vector<std::size_t> ranks;
    for (const BatchedShard& s : prices_.shards()) ranks.push_back(s.rank);
    return ranks;
  }

  void GoTo(const std::vector<std::size_t>& ranks) {
    for (std::size_t s = 0; s < ranks.size(); ++s) {
      if (prices_.shards()[s].rank != ranks[s]) CarryOut({s, BatchMove::kNone, ranks[s]});
    }
  }

  void Perturb() {
    const std::uint64_t count = 1 + random_.Below(kRandomMoves);
    for (std::uint64_t i = 0; i < count; ++i) {
      BatchMove move = {movable_[random_.Below(movable_.size())], BatchMove::kNone,
                        static_cast<std::size_t>(random_.Below(room_.size()))};
      if (random_.Below(2) == 0) {
        move.back = movable_[random_.Below(movable_.size())];
        move.to = prices_.shards()[move.back].rank;
      }
      if (!HasRoom(move)) continue;
      const BatchMove reverse = CarryOut(move);
      if (!IsLegal()) CarryOut(reverse);
    }
  }

  SearchContext& context_;
  const PlanRequest& request_;
  Plan plan_;
  BatchPrices prices_;
  std::vector<std::int64_t> room_;     // by rank
  std::vector<std::int64_t> bytes_;    // by shard
  std::vector<std::size_t> movable_;   // shards
  std::vector<Candidate> candidates_;  // of a step, the best first
  Random random_;
  std::int64_t steps_left_;
};

}  // namespace

Status DescendByBatches(SearchContext& context) {
  const Plan first = context.best_plan();
  if (!CanPriceBatches(context.request(), first)) return absl::OkStatus();
  std::optional<Descended> found = BatchDescent(context).Run();
  if (!found) return absl::OkStatus();
  // By all batches, and as the answer prices them; none where it is to stop.
  const auto objective_ms = [&](const Plan& plan) -> StatusOr<std::optional<double>> {
    NS_ASSIGN_OR_RETURN(const std::optional<double> mean_ms,
                        MeanOfMaxMs(context.request(), plan, context.model(), context.stop()));
    return mean_ms ? std::optional(WithMigration(context.request(), plan, *mean_ms)) : std::nullopt;
  };
  bool is_cheaper = found->surely_cheaper;
  if (!context.ShouldStop()) {
    NS_ASSIGN_OR_RETURN(const std::optional<double> before_ms, objective_ms(first));
    NS_ASSIGN_OR_RETURN(const std::optional<double> after_ms, objective_ms(found->plan));
    if (before_ms && after_ms) is_cheaper = *after_ms < *before_ms;
  }
  if (!is_cheaper) return absl::OkStatus();
  if (context.ShouldStop() && found->num_shards > kMaxShardsAtStop) return absl::OkStatus();
  return context.Improve(std::move(found->plan));
}

}  // namespace neuroshard
