#include "server/search/refine/local_search.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "common/base/hash.h"
#include "common/base/random.h"
#include "server/search/refine/moves/neighbourhood.h"
#include "server/search/refine/perturbation.h"
#include "server/search/refine/solution/move.h"
#include "server/search/refine/solution/plan_units.h"

namespace neuroshard {
namespace {

// Rounds in a row, each from the incumbent after a random change, that are no better than it before
// a restart.
constexpr int kRoundsBeforeRestart = 5;
// No rounds where the descent from a restart ends above the best of all by this share of its cost.
constexpr double kMaxGap = 0.02;
// The share of random changes that ruin and recreate ranks.
constexpr double kRuinShare = 0.7;
// Elites that are kept.
constexpr std::size_t kMaxElites = 8;
// The share of restarts that are crossovers as soon as there are two elites.
constexpr double kCrossoverShare = 0.8;
// Rounds over all restarts without a better plan than all before, after which the search ends:
// these and so many a table and rank.
constexpr std::int64_t kMinFruitlessRounds = 120;
constexpr std::int64_t kFruitlessRoundsEach = 3;
// A move has to gain this share of the cost.
constexpr double kMinGain = 1e-5;
// Steps of a descent after which its plan is handed out.
constexpr int kPublishEvery = 256;
constexpr std::size_t kMaxSources = 3;
// The weight of the newest error in the moving mean of estimates' errors.
constexpr double kErrorWeight = 0.05;

// Where a budget of time was asked for, it is used, and so is the work that was asked for.
std::int64_t MaxFruitlessRounds(const SearchContext& context) {
  if (context.uses_time_budget() || context.request().search.effort == SearchEffort::kThorough) {
    return std::numeric_limits<std::int64_t>::max();
  }
  const PlanRequest& request = context.request();
  return kMinFruitlessRounds +
         kFruitlessRoundsEach * std::ssize(request.tables) * std::ssize(request.topology.devices);
}

class LocalSearch : MoveTools {
 public:
  LocalSearch(Workbench& bench, InitialSolutions& initial, int start)
      : MoveTools(bench),
        bench_(bench),
        initial_(initial),
        perturbation_(bench),
        list_(pricer_.batch_size()),
        random_(context_.request().search.seed.value_or(0) +
                kGoldenGamma * static_cast<std::uint64_t>(start)),
        steps_left_(context_.request().search.refine_steps.value_or(
            std::numeric_limits<std::int64_t>::max())),
        max_fruitless_rounds_(MaxFruitlessRounds(context_)),
        start_(start) {
    const bool off_device = rules_.has_off_device();
    neighbourhoods_.push_back(MakeRankMoves(bench));
    if (off_device) neighbourhoods_.push_back(MakePromotionMoves(bench));
    if (context_.model().properties().additive_compute) {
      neighbourhoods_.push_back(MakePartitionMoves(bench));
    }
    neighbourhoods_.push_back(MakeTableMoves(bench));
    if (off_device) neighbourhoods_.push_back(MakeExchangeMoves(bench));
  }

  Status Run() {
    UpdateIncumbent();
    published_cost_ms_ = best_cost_ms_;  // by whoever made it
    if (start_ > 0) {
      Perturb();
      pricer_.PriceSolution();
    }
    while (true) {
      NS_RETURN_IF_ERROR(Iterate());
      if (Ended()) return absl::OkStatus();
      Restart();
    }
  }

 private:
  // The largest estimate at which a move is priced: what is estimated to be worse, by more than
  // estimates have been wrong lately, is not.
  double PricedUpToMs() const { return pricer_.objective().value_ms() + 2 * estimate_error_ms_; }

  bool Ended() {
    return steps_left_ <= 0 || fruitless_rounds_ >= max_fruitless_rounds_ || context_.WorkSpent() ||
           context_.ShouldStop();
  }

  // Begins at another solution, priced and the incumbent. Where memory is so scarce, or so little
  // may move, that no construction fits: at the context's best plan, if it is cheaper than all that
  // this search found, or at the incumbent again.
  void Restart() {
    NoteElite();
    const bool may_cross = elites_.size() >= 2 && random_.UniformReal() < kCrossoverShare;
    if ((may_cross && CrossElites()) || initial_.Restart(published_cost_ms_, random_)) {
      UpdateIncumbent();
    } else if (!solution_.migration_terms() && context_.has_plan() &&
               context_.best_cost_ms() < published_cost_ms_ * (1 - kMinGain)) {
      bench_.Load(context_.best_plan());
      UpdateIncumbent();
      published_cost_ms_ = best_cost_ms_;
    } else {
      RestartFromIncumbent();
    }
  }

  // Keeps the incumbent among the elites if it is one of the best.
  void NoteElite() {
    if (!std::isfinite(best_cost_ms_)) return;
    const auto is_same = [&](const Elite& elite) {
      return std::abs(elite.cost_ms - best_cost_ms_) < kMinGain * best_cost_ms_;
    };
    if (std::ranges::any_of(elites_, is_same)) return;
    const auto place = std::upper_bound(
        elites_.begin(), elites_.end(), best_cost_ms_,
        [](double cost_ms, const Elite& elite) { return cost_ms < elite.cost_ms; });
    elites_.insert(place, {best_cost_ms_, best_});
    if (elites_.size() > kMaxElites) elites_.pop_back();
  }

  // Mostly of the best ones, with any other.
  bool CrossElites() {
    const std::uint64_t count = elites_.size();
    const std::uint64_t first = std::min(random_.Below(count), random_.Below(count));
    std::uint64_t second = random_.Below(count - 1);
    if (second >= first) ++second;
    if (!perturbation_.Cross(elites_[first].units, elites_[second].units, random_)) return false;
    pricer_.PriceSolution();
    return true;
  }

  // Iterated local search around the best solution since the last restart; descent alone where that
  // ends far above the best of all.
  Status Iterate() {
    NS_RETURN_IF_ERROR(Descend());
    pricer_.WeighWork();
    NS_RETURN_IF_ERROR(Descend());
    if (best_cost_ms_ > (1 + kMaxGap) * published_cost_ms_) {
      ++fruitless_rounds_;
      context_.CountRound();
      return absl::OkStatus();
    }
    for (int round = 0; round < kRoundsBeforeRestart && !Ended(); ++round) {
      RestartFromIncumbent();
      Perturb();
      pricer_.PriceSolution();
      const double before_ms = best_cost_ms_;
      const double published_ms = published_cost_ms_;
      NS_RETURN_IF_ERROR(Descend());
      if (best_cost_ms_ < before_ms * (1 - kMinGain)) round = -1;
      ++fruitless_rounds_;
      context_.CountRound();
      if (published_cost_ms_ < published_ms * (1 - kMinGain)) fruitless_rounds_ = 0;
    }
    return absl::OkStatus();
  }

  // To a local optimum; keeps the best solution met and hands it out.
  Status Descend() {
    for (int step = 1; !Ended(); ++step) {
      if (!Step()) break;
      if (pricer_.objective().cost_ms() < best_cost_ms_) UpdateIncumbent();
      if (step % kPublishEvery == 0) NS_RETURN_IF_ERROR(Publish());
    }
    return Publish();
  }

  // Carries out the best move around the first source in the first neighbourhood that has one which
  // gains. Whether there was one.
  bool Step() {
    --steps_left_;
    ChooseSources();
    for (const auto& neighbourhood : neighbourhoods_) {
      for (const int source : sources_) {
        if (context_.ShouldStop()) return false;
        list_.Clear();
        neighbourhood->Collect(source, PricedUpToMs(), list_);
        if (TakeBest()) return true;
      }
    }
    return false;
  }

  // Prices the most promising first and stops at the first batch that holds something better.
  bool TakeBest() {
    const std::span<const Move> moves = list_.Sorted();
    const double now_ms = pricer_.objective().value_ms();
    // Estimates differ less and less down the list, so it is sampled ever more thinly there:
    // pricing all of it takes the time of other steps and ends nowhere better.
    const std::size_t priced_together = pricer_.priced_together();
    std::size_t stride = priced_together;
    for (std::size_t begin = 0; begin < moves.size(); begin += stride, stride *= 2) {
      if (moves[begin].estimate_ms > PricedUpToMs()) break;
      if (context_.ShouldStop()) return false;
      const auto batch = moves.subspan(begin, std::min(priced_together, moves.size() - begin));
      const auto priced = pricer_.Price(list_, batch);
      std::size_t best = priced.size();
      double best_ms = now_ms - kMinGain * pricer_.objective().cost_ms();
      for (std::size_t i = 0; i < priced.size(); ++i) {
        if (!priced[i].allowed) continue;
        const double error_ms = std::abs(priced[i].value_ms - batch[i].estimate_ms);
        estimate_error_ms_ += kErrorWeight * (error_ms - estimate_error_ms_);
        if (priced[i].value_ms < best_ms) {
          best = i;
          best_ms = priced[i].value_ms;
        }
      }
      if (best == priced.size()) continue;
      pricer_.Adopt(best);
      for (const int id : list_.removed(batch[best])) solution_.Remove(id);
      for (const Unit& unit : list_.added(batch[best])) solution_.Add(unit);
      return true;
    }
    return false;
  }

  void ChooseSources() {
    const Objective& objective = pricer_.objective();
    sources_.clear();
    const auto add_highest = [&](std::size_t count, const auto& value) {
      for (const int rank : objective.Largest(count, value)) {
        if (std::ranges::find(sources_, rank) == sources_.end()) sources_.push_back(rank);
      }
    };
    add_highest(1, [](const RankPrice& r) { return r.ready_ms(); });
    add_highest(1, [](const RankPrice& r) { return r.total_ms(); });
    add_highest(1, [](const RankPrice& r) { return r.forward_load; });
    add_highest(kMaxSources, [](const RankPrice& r) { return r.ready_ms(); });
  }

  void UpdateIncumbent() {
    best_cost_ms_ = pricer_.objective().cost_ms();
    context_.NoteCost(best_cost_ms_);
    solution_.Units(best_);
    best_rank_prices_ = pricer_.rank_prices();
  }

  void RestartFromIncumbent() {
    solution_.Clear();
    for (const Unit& unit : best_) solution_.Add(unit);
    pricer_.SetRankPrices(best_rank_prices_, solution_.MovesMs());
  }

  void Perturb() {
    if (random_.UniformReal() < kRuinShare) {
      ChooseSources();
      if (perturbation_.RuinRanks(sources_.front(), random_)) return;
      RestartFromIncumbent();
    }
    perturbation_.MoveAtRandom(random_);
  }

  Status Publish() {
    if (best_cost_ms_ >= published_cost_ms_) return absl::OkStatus();
    if (context_.stopped() && CountShards(best_) > kMaxShardsAtStop) return absl::OkStatus();
    NS_ASSIGN_OR_RETURN(const bool is_taken,
                        context_.ImproveIfCheaper(MakePlan(context_.request(), solution_, best_)));
    if (is_taken || !solution_.migration_terms()) {
      published_cost_ms_ = best_cost_ms_;
    } else {
      // It moves more than was counted: whatever comes next is the incumbent.
      best_cost_ms_ = std::numeric_limits<double>::infinity();
    }
    return absl::OkStatus();
  }

  Workbench& bench_;
  InitialSolutions& initial_;
  std::vector<std::unique_ptr<Neighbourhood>> neighbourhoods_;  // those tried first in front
  Perturbation perturbation_;
  MoveList list_;
  Random random_;
  std::int64_t steps_left_;
  // Rounds of perturbation and descent since one found a better plan than all before.
  std::int64_t fruitless_rounds_ = 0;
  const std::int64_t max_fruitless_rounds_;
  const int start_;

  std::vector<int> sources_;
  double estimate_error_ms_ = 0;  // mean over those priced lately
  // The incumbent: the best solution since the last restart.
  double best_cost_ms_ = std::numeric_limits<double>::infinity();
  std::vector<Unit> best_;
  std::vector<RankPrice> best_rank_prices_;
  // The incumbents of past restarts, the cheapest first, all of different costs.
  struct Elite {
    double cost_ms = 0;
    std::vector<Unit> units;
  };
  std::vector<Elite> elites_;
  double published_cost_ms_ = std::numeric_limits<double>::infinity();  // of all handed out
};

}  // namespace

Status SearchLocally(Workbench& bench, InitialSolutions& initial, int start) {
  return LocalSearch(bench, initial, start).Run();
}

}  // namespace neuroshard
