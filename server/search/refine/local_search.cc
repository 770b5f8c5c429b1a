#include "server/search/refine/local_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "server/search/refine/plan_units.h"

namespace neuroshard {
namespace {

// Rounds in a row, each from the incumbent after a small random change, that are no better than it
// before a restart.
constexpr int kRoundsBeforeRestart = 5;
// Such rounds over all restarts before the search ends, besides one a table and rank.
constexpr std::int64_t kLeastFruitlessRounds = 40;
// An exchange has to gain this share of the cost.
constexpr double kLeastGain = 1e-5;
// Steps of a descent after which its plan is handed out.
constexpr int kPublishEvery = 256;
// Between the seeds of searches side by side.
constexpr std::uint64_t kSeedStep = 0x9E3779B97F4A7C15U;
constexpr std::size_t kMostSources = 3;
// Exchanges that are carried out between two prices, at most.
constexpr std::size_t kMostDepth = 64;
// Exchanges that are priced together.
constexpr std::size_t kPriced = 4;
// Of the newest error in the mean of estimates' errors.
constexpr double kErrorWeight = 0.05;

// Where a budget of time was asked for, it is used.
std::int64_t MostFruitlessRounds(const PlanRequest& request) {
  if (request.search.time_budget.has_value()) return std::numeric_limits<std::int64_t>::max();
  return kLeastFruitlessRounds + std::ssize(request.tables) * std::ssize(request.topology.devices);
}

}  // namespace

LocalSearch::LocalSearch(SearchContext& context, const CompiledRules& rules,
                         const TableLayouts& layouts, ShardBook& book, ComputeMemo& memo,
                         ExchangePricer& pricer, Starts& starts, Solution& solution, int start)
    : context_(context),
      pricer_(pricer),
      starts_(starts),
      solution_(solution),
      rank_neighbours_(context, layouts, book, memo),
      table_neighbours_(context, rules, layouts, book),
      list_(pricer_.batch_size()),
      random_(context.request().search.seed.value_or(0) +
              kSeedStep * static_cast<std::uint64_t>(start)),
      steps_left_(
          context.request().search.refine_steps.value_or(std::numeric_limits<std::int64_t>::max())),
      most_fruitless_rounds_(MostFruitlessRounds(context.request())),
      start_(start) {}

Status LocalSearch::Run() {
  UpdateIncumbent();
  published_cost_ms_ = best_cost_ms_;  // by whoever made it
  if (start_ > 0) {
    Perturb();
    pricer_.PriceSolution(solution_);
  }
  while (true) {
    NS_RETURN_IF_ERROR(Iterate());
    if (Ended() || !starts_.Restart(published_cost_ms_, random_, solution_)) break;
    UpdateIncumbent();
  }
  return absl::OkStatus();
}

Status LocalSearch::Iterate() {
  NS_RETURN_IF_ERROR(Descend());
  pricer_.WeighWork();
  NS_RETURN_IF_ERROR(Descend());
  for (int round = 0; round < kRoundsBeforeRestart && !Ended(); ++round) {
    RestartFromIncumbent();
    Perturb();
    pricer_.PriceSolution(solution_);
    const double before_ms = best_cost_ms_;
    const double published_ms = published_cost_ms_;
    NS_RETURN_IF_ERROR(Descend());
    if (best_cost_ms_ < before_ms * (1 - kLeastGain)) round = -1;
    ++fruitless_rounds_;
    if (published_cost_ms_ < published_ms * (1 - kLeastGain)) fruitless_rounds_ = 0;
  }
  return absl::OkStatus();
}

Status LocalSearch::Descend() {
  for (int step = 1; !Ended(); ++step) {
    if (!Step()) break;
    if (pricer_.outlook().cost_ms() < best_cost_ms_) UpdateIncumbent();
    if (step % kPublishEvery == 0) NS_RETURN_IF_ERROR(Publish());
  }
  return Publish();
}

bool LocalSearch::Step() {
  --steps_left_;
  if (!far_first_ && depth_ > 1 && Leap()) return true;
  ChooseSources();
  const bool far_first = far_first_;
  if (far_first && TryRanks(Reach::kFar)) return true;
  far_first_ = false;
  if (TryRanks(Reach::kNear) || TryTables()) return true;
  far_first_ = !far_first && TryRanks(Reach::kFar);
  return far_first_;
}

bool LocalSearch::TryRanks(Reach reach) {
  for (const int source : sources_) {
    if (context_.ShouldStop()) return false;
    list_.Clear();
    rank_neighbours_.Collect(solution_, pricer_, source, reach, list_);
    if (TakeBest()) return true;
  }
  return false;
}

bool LocalSearch::TryTables() {
  for (const int source : sources_) {
    if (context_.ShouldStop()) return false;
    list_.Clear();
    table_neighbours_.Collect(solution_, pricer_, source, list_);
    if (TakeBest()) return true;
  }
  return false;
}

bool LocalSearch::Leap() {
  const double before_ms = pricer_.outlook().potential_ms();
  before_ = pricer_.standings();
  ForgetDone();
  const auto advance = [&] {
    ChooseSources();
    for (const int source : sources_) {
      if (context_.ShouldStop()) return false;
      list_.Clear();
      rank_neighbours_.Collect(solution_, pricer_, source, Reach::kNear, list_);
      const double now_ms = pricer_.outlook().potential_ms();
      const double least_gain_ms = kLeastGain * pricer_.outlook().cost_ms();
      for (const Exchange& exchange : list_.Sorted()) {
        if (exchange.estimate_ms > now_ms - least_gain_ms) break;
        if (!solution_.Allows(list_.leaving(exchange), list_.coming(exchange))) continue;
        pricer_.Anticipate(solution_, list_, exchange);
        if (pricer_.outlook().potential_ms() > now_ms - least_gain_ms) {
          pricer_.SetStandings(anticipated_);
          continue;
        }
        anticipated_ = pricer_.standings();
        CarryOut(exchange);
        return true;
      }
    }
    return false;
  };
  anticipated_ = before_;
  while (done_.size() < depth_ && advance()) {
  }
  if (done_.empty()) return false;
  pricer_.PriceSolution(solution_);
  if (pricer_.outlook().potential_ms() < before_ms - kLeastGain * pricer_.outlook().cost_ms()) {
    if (done_.size() == depth_) depth_ = std::min(2 * depth_, kMostDepth);
    return true;
  }
  Undo();
  pricer_.SetStandings(before_);
  depth_ = std::max<std::size_t>(1, depth_ / 2);
  return false;
}

void LocalSearch::CarryOut(const Exchange& exchange) {
  for (const int id : list_.leaving(exchange)) {
    left_.push_back(solution_.unit(id));
    solution_.Remove(id);
  }
  for (const Unit& unit : list_.coming(exchange)) came_.push_back(solution_.Add(unit));
  done_.push_back({left_.size(), came_.size()});
}

void LocalSearch::ForgetDone() {
  done_.clear();
  left_.clear();
  came_.clear();
}

// In the exact opposite order, so that units get the ids back that earlier exchanges know them by.
void LocalSearch::Undo() {
  while (!done_.empty()) {
    done_.pop_back();
    const Done before = done_.empty() ? Done{} : done_.back();
    for (; came_.size() > before.came_end; came_.pop_back()) solution_.Remove(came_.back());
    for (; left_.size() > before.left_end; left_.pop_back()) solution_.Add(left_.back());
  }
}

// Prices the most promising first and stops at the first batch that holds something better. What is
// estimated to be worse, by more than estimates have been wrong lately, is not priced at all.
bool LocalSearch::TakeBest() {
  const std::span<const Exchange> exchanges = list_.Sorted();
  const double now_ms = pricer_.outlook().potential_ms();
  // Estimates differ less and less down the list, so it is sampled ever more thinly there: pricing
  // all of it takes the time of other steps and ends nowhere better.
  std::size_t stride = kPriced;
  for (std::size_t begin = 0; begin < exchanges.size(); begin += stride, stride *= 2) {
    if (exchanges[begin].estimate_ms > now_ms + 2 * estimate_error_ms_) break;
    if (context_.ShouldStop()) return false;
    const auto batch = exchanges.subspan(begin, std::min(kPriced, exchanges.size() - begin));
    const auto priced = pricer_.Price(solution_, list_, batch);
    std::size_t best = priced.size();
    double best_ms = now_ms - kLeastGain * pricer_.outlook().cost_ms();
    for (std::size_t i = 0; i < priced.size(); ++i) {
      if (!priced[i].allowed) continue;
      const double error_ms = std::abs(priced[i].potential_ms - batch[i].estimate_ms);
      estimate_error_ms_ += kErrorWeight * (error_ms - estimate_error_ms_);
      if (priced[i].potential_ms < best_ms) {
        best = i;
        best_ms = priced[i].potential_ms;
      }
    }
    if (best == priced.size()) continue;
    pricer_.Adopt(best);
    ForgetDone();
    CarryOut(batch[best]);
    return true;
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

void LocalSearch::UpdateIncumbent() {
  best_cost_ms_ = pricer_.outlook().cost_ms();
  solution_.Units(best_);
}

void LocalSearch::RestartFromIncumbent() {
  solution_.Clear();
  for (const Unit& unit : best_) solution_.Add(unit);
}

// A few units go to other ranks, or tables get other layouts, with no regard to costs.
void LocalSearch::Perturb() {
  const auto ranks = static_cast<std::uint64_t>(solution_.num_ranks());
  const int moves = static_cast<int>(random_.Between(2, 6));
  for (int i = 0; i < moves; ++i) {
    if (random_.Below(2) == 0) {
      table_neighbours_.RandomRelayout(solution_, pricer_, random_);
      continue;
    }
    const int from = static_cast<int>(random_.Below(ranks));
    const int to = static_cast<int>(random_.Below(ranks));
    const auto units = solution_.units_on_rank(from);
    if (from == to || units.empty()) continue;
    const int id = units[random_.Below(units.size())];
    Unit unit = solution_.unit(id);
    unit.place = to;
    if (!solution_.Allows(std::span(&id, 1), std::span(&unit, 1))) continue;
    solution_.Remove(id);
    solution_.Add(unit);
  }
}

Status LocalSearch::Publish() {
  if (best_cost_ms_ >= published_cost_ms_) return absl::OkStatus();
  if (context_.stopped() && CountShards(best_) > kMostShardsAtStop) return absl::OkStatus();
  published_cost_ms_ = best_cost_ms_;
  return context_.ImproveIfCheaper(MakePlan(context_.request(), solution_, best_)).status();
}

}  // namespace neuroshard
