#include "server/search/goals/second_goals.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/domain/memory_use.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/migration_report.h"
#include "server/evaluate/price_plan.h"
#include "server/evaluate/rules/row_cuts.h"
#include "server/evaluate/stash.h"

namespace neuroshard {
namespace {

// Probes of a bisection, with half of the tolerance and with all of it, at most. It ends where less
// than this share of a value is left to win.
constexpr int kProbesOfHalf = 3;
constexpr int kProbes = 6;
constexpr double kResolution = 2e-3;
// A probe is a quick search. One that ends above the cost's limit, but no more than this share of
// it, is made again with more work.
constexpr double kPromising = 0.03;
// What sums of the same numbers may differ by.
constexpr double kRounding = 1e-9;
// What bytes that are a share of a device's may differ by.
constexpr double kByteRounding = 1e-3;

// More than any rank stashes: of a plan with no stash that leaves dense layers room. The other is a
// limit on stashes that any stash keeps.
constexpr double kNoStash = 0x1.0p52;
constexpr double kAnyStash = 0x1.0p51;
// More host memory than any copies take.
constexpr std::int64_t kEnoughBytes = std::int64_t{1} << 50;

// A measure of which a plan may have so much.
struct Limit {
  PlanMeasure measure;
  double value;
};

// A module and the types of its tables.
using Exchange = std::pair<std::string, ShardingType>;

double WeightsOf(const Table& table) {
  return static_cast<double>(table.num_embeddings) * static_cast<double>(table.embedding_dim);
}

bool IsCut(const TablePlan& table) {
  return table.shards.size() > 1 && table.sharding_type != ShardingType::kDataParallel;
}

double UsedShare(const RankCost& rank) {
  return static_cast<double>(rank.memory.total_bytes()) / static_cast<double>(rank.capacity_bytes);
}

// Devices with less memory than `original` has, of which nothing is reserved: this share of it, less
// so many bytes. A share beyond all and bytes below none are no limit.
void LimitMemory(double share, double bytes_less, const PlanRequest& original,
                 PlanRequest& request) {
  KeepRowWeights(original, request);
  for (std::size_t r = 0; r < original.topology.devices.size(); ++r) {
    const std::int64_t all = original.topology.devices[r].memory_bytes;
    const double limit =
        std::min(share, 1.0) * static_cast<double>(all) - std::max(bytes_less, 0.0);
    const std::int64_t left =
        static_cast<std::int64_t>(limit + kByteRounding) - ReserveBytes(original.memory, all);
    std::int64_t& of_rank = request.topology.devices[r].memory_bytes;
    of_rank = std::max<std::int64_t>(1, std::min(of_rank, left));
  }
  request.memory.reserve_fraction = 0;
  request.memory.reserve_bytes = 0;
}

// Copies of what is stashed are in host memory, of which a rank may take so much beside what it has
// there in `best` for other reasons. Hosts without any get enough of it, for nothing else.
void LimitStash(double bytes, const SearchResult& best, PlanRequest& request) {
  if (std::ranges::none_of(request.tables, &Table::stash_weights)) return;
  Topology& topology = request.topology;
  const bool has_host_memory = !topology.host_memory_bytes.empty();
  if (!has_host_memory) {
    topology.host_memory_bytes.assign(topology.hosts().size(), kEnoughBytes);
    std::vector<bool> has_kernels(request.tables.size());
    for (TableRule& rule : request.constraints.tables) {
      if (rule.compute_kernels.empty()) continue;
      std::erase_if(rule.compute_kernels, [](ComputeKernel kernel) {
        return TraitsOf(kernel).tier == MemoryTier::kHost;
      });
      for (const int t : rule.tables) has_kernels[static_cast<std::size_t>(t)] = true;
    }
    TableRule on_device;
    on_device.compute_kernels = {ComputeKernel::kFused, ComputeKernel::kDense};
    for (std::size_t t = 0; t < has_kernels.size(); ++t) {
      if (!has_kernels[t]) on_device.tables.push_back(static_cast<int>(t));
    }
    if (!on_device.tables.empty()) request.constraints.tables.push_back(std::move(on_device));
  }
  for (std::size_t r = 0; r < topology.devices.size(); ++r) {
    const MemoryUse& use = best.cost.ranks[r].memory;
    std::int64_t most = std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes));
    if (has_host_memory) most += use.by_tier()[MemoryTier::kHost] - use.stashed_bytes;
    std::int64_t& of_rank = topology.devices[r].max_host_memory_bytes;
    of_rank = of_rank == 0 ? most : std::min(of_rank, most);
  }
}

// What devices have beyond the room that dense layers leave, of all ranks together.
double ExcessBytes(const PlanRequest& request, const SearchResult& best) {
  double excess = 0;
  for (const RankCost& rank : best.cost.ranks) {
    excess += static_cast<double>(rank.memory.total_bytes() - rank.capacity_bytes);
    excess += static_cast<double>(request.memory.dense_bytes);
  }
  return excess;
}

double StashedBytes(const SearchResult& best) {
  double stashed = 0;
  for (const RankCost& rank : best.cost.ranks) {
    stashed += static_cast<double>(rank.memory.stashed_bytes);
  }
  return stashed;
}

// Dense layers have their room all the time, and what is stashed takes no more than that, so that
// both fit in turn. The first tables in StashOrder are stashed, halfway between what has to leave and
// `bytes` a rank, so that neither these nor the others are short of room. Returns what a rank may
// stash.
double ShareWithDense(double bytes, const PlanRequest& original, const SearchResult& best,
                      PlanRequest& request) {
  const double dense = static_cast<double>(original.memory.dense_bytes);
  LimitMemory(1, dense, original, request);
  request.memory.only_dense = true;
  bytes = std::min(bytes, dense);
  const double least = ExcessBytes(original, best);
  const double most = bytes * static_cast<double>(best.cost.ranks.size());
  double stashed = StashedBytes(best);
  for (const int t : StashOrder(original)) {
    Table& table = At(request.tables, t);
    if (table.stash_weights || !CanBeStashed(LayoutOf(At(best.plan.tables, t)))) continue;
    const double weights = WeightsOf(table) * ElementBytes(table.weight_dtype);
    if (stashed >= least && (stashed + weights > most || stashed >= (least + most) / 2)) break;
    table.stash_weights = true;
    stashed += weights;
  }
  return bytes;
}

// A measure has one limit, the last.
void DropLimit(PlanMeasure measure, std::vector<Limit>& limits) {
  std::erase_if(limits, [&](const Limit& of) { return of.measure == measure; });
}

// The `most` largest of the tables that the plan cuts may be cut; every other is one shard. Tables on
// every rank stay free, to be cut as well, which the search's plan is checked for.
void LimitCuts(int most, const Plan& plan, PlanRequest& request) {
  std::vector<int> cut;
  TableRule whole;
  whole.max_shards = 1;
  for (int t = 0; t < static_cast<int>(plan.tables.size()); ++t) {
    if (IsCut(At(plan.tables, t))) {
      cut.push_back(t);
    } else if (At(plan.tables, t).shards.size() == 1) {
      whole.tables.push_back(t);
    }
  }
  std::ranges::stable_sort(cut, std::greater{},
                           [&](int t) { return WeightsOf(At(request.tables, t)); });
  for (std::size_t i = static_cast<std::size_t>(most); i < cut.size(); ++i) {
    whole.tables.push_back(cut[i]);
  }
  std::ranges::sort(whole.tables);
  if (!whole.tables.empty()) request.constraints.tables.push_back(std::move(whole));
}

// Each module keeps the type of its exchange with the most weights; beside these stay the largest
// of the others.
void LimitExchanges(int most, const Plan& plan, PlanRequest& request) {
  std::map<Exchange, double> weights;
  std::map<std::string, TableRule> rules;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const TablePlan& table = plan.tables[t];
    weights[{table.module, table.sharding_type}] += WeightsOf(request.tables[t]);
    rules[table.module].tables.push_back(static_cast<int>(t));
  }
  std::vector<std::pair<double, Exchange>> largest_first;
  for (const auto& [exchange, of] : weights) largest_first.emplace_back(of, exchange);
  std::ranges::stable_sort(largest_first, std::greater{},
                           &decltype(largest_first)::value_type::first);
  int kept = 0;
  for (const bool first_of_module : {true, false}) {
    for (const auto& [of, exchange] : largest_first) {
      std::vector<ShardingType>& own = rules[exchange.first].sharding_types;
      const bool is_there = std::ranges::find(own, exchange.second) != own.end();
      if (is_there || (first_of_module ? !own.empty() : kept >= most)) continue;
      own.push_back(exchange.second);
      ++kept;
    }
  }
  for (auto& [module, rule] : rules) request.constraints.tables.push_back(std::move(rule));
}

// The request with fewer plans: hardly any that the limits forbid, though not all that they allow.
// Where counts are limited, the best plan so far says what there is to choose from.
PlanRequest Limited(const PlanRequest& original, std::span<const Limit> limits,
                    const SearchResult& best) {
  PlanRequest request = original;
  const Plan& plan = best.plan;
  for (const auto& [measure, value] : limits) {
    switch (measure) {
      case PlanMeasure::kCost:
        break;
      case PlanMeasure::kMaxMemory:
        LimitMemory(value, 0, original, request);
        break;
      case PlanMeasure::kMovedBytes:
        request.migration->budget_bytes =
            std::min(request.migration->budget_bytes.value_or(static_cast<std::int64_t>(value)),
                     static_cast<std::int64_t>(value));
        break;
      case PlanMeasure::kCutTables:
        LimitCuts(static_cast<int>(value), plan, request);
        break;
      case PlanMeasure::kExchanges:
        LimitExchanges(static_cast<int>(value), plan, request);
        break;
      case PlanMeasure::kMaxStash:
        LimitStash(original.memory.dense_bytes == 0
                       ? value
                       : ShareWithDense(value, original, best, request),
                   best, request);
        break;
    }
  }
  return request;
}

// Ends a search that has a plan of this cost, or when `outer` says so. It has no time to spend beyond
// the search's own work.
class UntilCheapEnough final : public SearchObserver, public StopSignal {
 public:
  UntilCheapEnough(const PlanRequest& request, double limit_ms, const StopSignal& outer)
      : request_(request), limit_ms_(limit_ms), outer_(outer) {}

  void OnImprovement(const SearchResult& result) override {
    if (ValueOf(PlanMeasure::kCost, request_, result.plan, result.cost) <= limit_ms_) {
      is_cheap_enough_.store(true, std::memory_order_relaxed);
    }
  }
  void OnProgress(double) override {}
  bool ShouldStop() const override {
    return is_cheap_enough_.load(std::memory_order_relaxed) || outer_.ShouldStop();
  }

 private:
  const PlanRequest& request_;
  const double limit_ms_;
  const StopSignal& outer_;
  std::atomic<bool> is_cheap_enough_{false};
};

// Passes on the first search's plans, and progress as a part of all.
class FirstOfAll final : public SearchObserver {
 public:
  FirstOfAll(SearchObserver* observer, double share) : observer_(observer), share_(share) {}

  void OnImprovement(const SearchResult& result) override {
    if (observer_ != nullptr) observer_->OnImprovement(result);
  }
  void OnProgress(double share) override {
    if (observer_ != nullptr) observer_->OnProgress(share_ * share);
  }

 private:
  SearchObserver* const observer_;
  const double share_;
};

class GoalSearch {
 public:
  GoalSearch(const PlanRequest& request, const BoundCostModel& model, const StopSignal& stop,
             SearchObserver* observer, const SearchForCost& search)
      : goals_(request.search.goals.empty() ? std::vector<PlanGoal>(1) : request.search.goals),
        request_(request),
        model_(model),
        stop_(stop),
        observer_(observer),
        search_(search),
        before_goals_(request.memory.dense_bytes > 0 ? 2 : 1),
        num_searches_(before_goals_ + kSearchesAGoal * (goals_.size() - 1)) {
    request_.search.goals.clear();
    request_.search.time_budget.reset();  // it is the stop signal's
  }

  StatusOr<SearchResult> Run() {
    FirstOfAll first(observer_, 1 / static_cast<double>(num_searches_));
    NS_ASSIGN_OR_RETURN(best_, search_(request_, stop_, &first));
    Count(best_.statistics);
    NS_RETURN_IF_ERROR(LeaveDenseLayersRoom());
    if (goals_.size() == 1 && limits_.empty()) return std::move(best_);
    Report(before_goals_);
    const double least_ms = Value(PlanMeasure::kCost);
    std::vector<GoalTrade> trades;
    for (std::size_t i = 1; i < goals_.size() && !stop_.ShouldStop(); ++i) {
      const PlanMeasure measure = goals_[i].measure;
      GoalTrade trade{measure, {Point(measure)}};
      // Goals before this one may have left no half.
      if (Value(PlanMeasure::kCost) <= LimitMs(least_ms, 0.5)) {
        NS_RETURN_IF_ERROR(Reduce(measure, LimitMs(least_ms, 0.5), kProbesOfHalf));
      }
      const TradePoint half = Point(measure);
      NS_RETURN_IF_ERROR(Reduce(measure, LimitMs(least_ms, 1), kProbes));
      NS_RETURN_IF_ERROR(Cheapen(measure));
      trade.points.push_back(half.cost_ms < Value(PlanMeasure::kCost) ? half : Point(measure));
      trade.points.push_back(Point(measure));
      trades.push_back(std::move(trade));
      DropLimit(measure, limits_);
      limits_.push_back({measure, Value(measure) * (1 + goals_[i].tolerance) + kRounding});
      Report(before_goals_ + kSearchesAGoal * i);
    }
    best_.trades = std::move(trades);
    best_.statistics.plans_evaluated = plans_evaluated_;
    best_.statistics.compute_evaluations = compute_evaluations_;
    best_.statistics.time_limit_reached = stop_.ShouldStop();
    return std::move(best_);
  }

 private:
  // The last one is for the cheapest plan with what the bisections found.
  static constexpr std::size_t kSearchesAGoal = kProbesOfHalf + kProbes + 1;

  double LimitMs(double least_ms, double share) const {
    return least_ms * (1 + share * goals_[0].tolerance) * (1 + kRounding);
  }
  double Value(PlanMeasure measure, const SearchResult& result) const {
    return ValueOf(measure, request_, result.plan, result.cost);
  }
  double Value(PlanMeasure measure) const { return Value(measure, best_); }
  TradePoint Point(PlanMeasure measure) const {
    return {Value(PlanMeasure::kCost), Value(measure)};
  }

  // What hardly any plan is below: an even spread of the bytes that there are or that are too many,
  // an exchange a module, nothing.
  double FloorOf(PlanMeasure measure) const {
    if (measure == PlanMeasure::kMaxMemory) {
      double used = 0, capacity = 0;
      for (const RankCost& rank : best_.cost.ranks) {
        used += static_cast<double>(rank.memory.total_bytes());
        capacity += static_cast<double>(rank.capacity_bytes);
      }
      return used / capacity;
    }
    if (measure == PlanMeasure::kMaxStash) {
      return std::max(StashedBytes(best_), ExcessBytes(request_, best_)) /
             static_cast<double>(best_.cost.ranks.size());
    }
    if (measure != PlanMeasure::kExchanges) return 0;
    std::set<std::string> modules;
    for (const TablePlan& table : best_.plan.tables) modules.insert(table.module);
    return static_cast<double>(modules.size());
  }

  // Where nothing that the cheapest plan has can be stashed to leave dense layers room: to the
  // cheapest one of which something can, with room for dense layers in all searches from here on.
  // FAILED_PRECONDITION: none was found, with what the cheapest plan lacks. DEADLINE_EXCEEDED: there
  // was no time to look for one.
  Status LeaveDenseLayersRoom() {
    if (HasStash(best_)) return absl::OkStatus();
    const Limit any_stash = {PlanMeasure::kMaxStash, kAnyStash};
    NS_ASSIGN_OR_RETURN(auto found, Search(any_stash, 0, request_.search.effort));
    if (!found && stop_.ShouldStop()) {
      return DeadlineExceeded(
          "memory.dense_bytes: of the cheapest plan too little can be stashed for {} "
          "bytes on each device, and there was no time to look for another",
          request_.memory.dense_bytes);
    }
    if (!found) return ChooseStash(request_, best_.plan).status();
    best_ = *std::move(found);
    limits_.push_back(any_stash);
    return absl::OkStatus();
  }

  // Whether dense layers have the room that the request wants for them, if it wants any.
  bool HasStash(const SearchResult& result) const {
    return request_.memory.dense_bytes == 0 || Value(PlanMeasure::kMaxStash, result) < kNoStash;
  }

  // To a plan with less of it that costs no more than `limit_ms`, if the best one does not.
  Status Reduce(PlanMeasure measure, double limit_ms, int probes) {
    const bool counts = measure == PlanMeasure::kCutTables || measure == PlanMeasure::kExchanges;
    double high = Value(measure);
    double low = FloorOf(measure);  // of counts the least that was not tried
    for (int probe = 0; probe < probes && !stop_.ShouldStop(); ++probe) {
      if (high - low <= (counts ? 0 : kResolution * high)) break;
      const double level = counts ? std::floor((low + high) / 2) : (low + high) / 2;
      NS_ASSIGN_OR_RETURN(const auto found, Probe({measure, level}, limit_ms));
      if (found && Value(PlanMeasure::kCost, *found) <= limit_ms) {
        best_ = *found;
        high = Value(measure);
      } else {
        low = counts ? level + 1 : level;
      }
    }
    return absl::OkStatus();
  }

  // To the cheapest plan with no more of it: searches before ended as soon as a plan was cheap
  // enough, before they merged shards and used memory that is left.
  Status Cheapen(PlanMeasure measure) {
    if (stop_.ShouldStop()) return absl::OkStatus();
    NS_ASSIGN_OR_RETURN(const auto found,
                        Search({measure, Value(measure)}, 0, request_.search.effort));
    if (found && Value(PlanMeasure::kCost, *found) <= Value(PlanMeasure::kCost)) best_ = *found;
    return absl::OkStatus();
  }

  StatusOr<std::optional<SearchResult>> Probe(const Limit& limit, double limit_ms) {
    NS_ASSIGN_OR_RETURN(auto found, Search(limit, limit_ms, SearchEffort::kQuick));
    const bool is_promising = found && Value(PlanMeasure::kCost, *found) > limit_ms &&
                              Value(PlanMeasure::kCost, *found) <= (1 + kPromising) * limit_ms;
    if (is_promising && request_.search.effort != SearchEffort::kQuick &&
        !request_.search.refine_steps) {
      NS_ASSIGN_OR_RETURN(found, Search(limit, limit_ms, SearchEffort::kDefault));
    }
    Report(done_ + 1);
    return found;
  }

  // For a plan within one more limit, until one costs `limit_ms`. None: there was none.
  StatusOr<std::optional<SearchResult>> Search(const Limit& limit, double limit_ms,
                                               SearchEffort effort) {
    std::vector<Limit> limits = limits_;
    DropLimit(limit.measure, limits);
    limits.push_back(limit);
    PlanRequest limited = Limited(request_, limits, best_);
    limited.search.effort = effort;
    // Searches side by side would be cut wherever they are when one has a plan.
    if (limit_ms > 0) limited.search.max_threads = 1;
    UntilCheapEnough until(request_, limit_ms, stop_);
    StatusOr<SearchResult> found = search_(limited, until, &until);
    if (absl::IsFailedPrecondition(found.status()) || absl::IsDeadlineExceeded(found.status())) {
      return std::nullopt;
    }
    NS_RETURN_IF_ERROR(found.status());
    Count(found->statistics);
    // Its memory was another.
    NS_ASSIGN_OR_RETURN(found->cost, PricePlan(request_, found->plan, model_));
    // Limits are said in words that may allow what the request does not.
    const bool keeps = CheckPlan(request_, found->plan).empty() && HasStash(*found) &&
                       std::ranges::all_of(limits, [&](const Limit& of) {
                         return Value(of.measure, *found) <= of.value + kRounding;
                       });
    return keeps ? std::optional(*std::move(found)) : std::nullopt;
  }

  void Count(const SearchStatistics& of) {
    plans_evaluated_ += of.plans_evaluated;
    compute_evaluations_ += of.compute_evaluations;
  }
  void Report(std::size_t done) {
    done_ = done;
    if (observer_ == nullptr) return;
    observer_->OnProgress(static_cast<double>(done_) / static_cast<double>(num_searches_));
  }

  const std::vector<PlanGoal> goals_;
  PlanRequest request_;  // without them
  const BoundCostModel& model_;
  const StopSignal& stop_;
  SearchObserver* const observer_;
  const SearchForCost& search_;
  const std::size_t before_goals_;  // searches before those of goals, at most
  const std::size_t num_searches_;  // at most, a probe with more work not counted
  std::size_t done_ = 1;
  std::int64_t plans_evaluated_ = 0;
  std::int64_t compute_evaluations_ = 0;
  SearchResult best_;
  std::vector<Limit> limits_;  // of the goals that are done
};

}  // namespace

double ValueOf(PlanMeasure measure, const PlanRequest& request, const Plan& plan,
               const PlanCost& cost) {
  switch (measure) {
    case PlanMeasure::kCost:
      return CostWithMigration(request, plan, cost);
    case PlanMeasure::kMaxMemory: {
      double largest = 0;
      for (const RankCost& rank : cost.ranks) largest = std::max(largest, UsedShare(rank));
      return largest;
    }
    case PlanMeasure::kMovedBytes:
      return static_cast<double>(ReportMigration(request, plan).moved_bytes);
    case PlanMeasure::kCutTables:
      return static_cast<double>(std::ranges::count_if(plan.tables, IsCut));
    case PlanMeasure::kExchanges: {
      std::set<Exchange> exchanges;
      for (const TablePlan& table : plan.tables) {
        exchanges.emplace(table.module, table.sharding_type);
      }
      return static_cast<double>(exchanges.size());
    }
    case PlanMeasure::kMaxStash: {
      const StatusOr<Stash> stash = ChooseStash(request, plan);
      return stash.ok() ? static_cast<double>(stash->max_bytes) : kNoStash;
    }
  }
  return 0;
}

StatusOr<SearchResult> SearchByGoals(const PlanRequest& request, const BoundCostModel& model,
                                     const StopSignal& stop, SearchObserver* observer,
                                     const SearchForCost& search) {
  return GoalSearch(request, model, stop, observer, search).Run();
}

}  // namespace neuroshard
