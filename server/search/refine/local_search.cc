#include "server/search/refine/local_search.h"

#include <algorithm>
#include <numeric>

#include "server/search/placement/placement.h"
#include "server/search/refine/plan_units.h"

namespace neuroshard {
namespace {

// Local optima in a row, each from the best plan after a small random change, that are no better
// than it before the search ends.
constexpr int kFruitlessRounds = 40;
// An exchange has to gain this share of the cost.
constexpr double kLeastGain = 1e-6;
constexpr std::size_t kMostSources = 6;

}  // namespace

LocalSearch::LocalSearch(SearchContext& context)
    : context_(context),
      types_(context.request(), context.model().info()),
      book_(context),
      memo_(context, book_),
      solution_(context.request(), book_),
      pricer_(context, book_, memo_),
      rank_neighbours_(context, types_, book_, memo_),
      list_(pricer_.batch_size()),
      random_(context.request().search.seed),
      steps_left_(context.request().search.refine_steps.value_or(
          std::numeric_limits<std::int64_t>::max())) {}

Status LocalSearch::Run() {
  LoadPlan(context_.request(), context_.best_plan(), book_, solution_);
  pricer_.PriceSolution(solution_);
  Remember();
  unpublished_ = false;
  Descend();
  NS_RETURN_IF_ERROR(Publish());
  for (int fruitless = 0; fruitless < kFruitlessRounds; ++fruitless) {
    if (Exhausted() || context_.ShouldStop()) break;
    Restore();
    Perturb();
    pricer_.PriceSolution(solution_);
    const double before_ms = best_cost_ms_;
    Descend();
    if (best_cost_ms_ < before_ms * (1 - kLeastGain)) fruitless = -1;
    NS_RETURN_IF_ERROR(Publish());
  }
  return absl::OkStatus();
}

void LocalSearch::Descend() {
  while (!Exhausted() && !context_.ShouldStop()) {
    if (!Step()) break;
    if (pricer_.outlook().cost_ms() < best_cost_ms_) Remember();
  }
}

bool LocalSearch::Step() {
  --steps_left_;
  ChooseSources();
  for (const Reach reach : {Reach::kNear, Reach::kFar}) {
    for (const int source : sources_) {
      if (context_.ShouldStop()) return false;
      list_.Clear();
      rank_neighbours_.Collect(solution_, pricer_, source, reach, list_);
      const std::span<const Exchange> exchanges = list_.Sorted();
      const auto priced = pricer_.Price(solution_, list_, exchanges);
      std::size_t best = priced.size();
      double best_ms = pricer_.outlook().potential_ms() * (1 - kLeastGain);
      for (std::size_t i = 0; i < priced.size(); ++i) {
        if (priced[i].fits && priced[i].potential_ms < best_ms) {
          best = i;
          best_ms = priced[i].potential_ms;
        }
      }
      if (best == priced.size()) continue;
      pricer_.Adopt(best);
      for (const int id : list_.leaving(exchanges[best])) solution_.Remove(id);
      for (const Unit& unit : list_.coming(exchanges[best])) solution_.Add(unit);
      return true;
    }
  }
  return false;
}

void LocalSearch::ChooseSources() {
  const Outlook& outlook = pricer_.outlook();
  sources_.clear();
  const auto add_highest = [&](std::size_t count, const auto& value) {
    order_.resize(static_cast<std::size_t>(outlook.num_ranks()));
    std::iota(order_.begin(), order_.end(), 0);
    count = std::min(count, order_.size());
    std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(count),
                      order_.end(), [&](int a, int b) {
                        const double of_a = value(outlook.rank(a));
                        const double of_b = value(outlook.rank(b));
                        return of_a != of_b ? of_a > of_b : a < b;
                      });
    for (std::size_t i = 0; i < count; ++i) {
      if (std::find(sources_.begin(), sources_.end(), order_[i]) == sources_.end()) {
        sources_.push_back(order_[i]);
      }
    }
  };
  add_highest(1, [](const RankStanding& r) { return r.ready_ms(); });
  add_highest(1, [](const RankStanding& r) { return r.total_ms(); });
  add_highest(1, [](const RankStanding& r) { return r.forward_load; });
  add_highest(kMostSources, [](const RankStanding& r) { return r.ready_ms(); });
}

void LocalSearch::Remember() {
  best_cost_ms_ = pricer_.outlook().cost_ms();
  best_ = solution_.Units();
  unpublished_ = true;
}

void LocalSearch::Restore() {
  solution_.Clear();
  for (const Unit& unit : best_) solution_.Add(unit);
}

// A few units go to other ranks, with no regard to costs.
void LocalSearch::Perturb() {
  const std::vector<std::int64_t> available = AvailableBytes(context_.request());
  const int moves = static_cast<int>(random_.Between(2, 4));
  for (int i = 0; i < moves; ++i) {
    const int from =
        static_cast<int>(random_.Below(static_cast<std::uint64_t>(solution_.num_ranks())));
    const int to =
        static_cast<int>(random_.Below(static_cast<std::uint64_t>(solution_.num_ranks())));
    const auto units = solution_.units_on_rank(from);
    if (from == to || units.empty()) continue;
    const int id = units[random_.Below(units.size())];
    Unit unit = solution_.unit(id);
    if (solution_.rank(to).bytes + book_.bytes(unit.shards.full) >
        available[static_cast<std::size_t>(to)]) {
      continue;
    }
    solution_.Remove(id);
    unit.place = to;
    solution_.Add(unit);
  }
}

Status LocalSearch::Publish() {
  if (!unpublished_) return absl::OkStatus();
  unpublished_ = false;
  Solution best = solution_;
  best.Clear();
  for (const Unit& unit : best_) best.Add(unit);
  return context_.ImproveIfCheaper(MakePlan(context_.request(), best)).status();
}

}  // namespace neuroshard
