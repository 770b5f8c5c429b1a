#include "server/search/refine/initial/initial_solutions.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "common/base/failure_reason.h"
#include "common/domain/table_names.h"
#include "server/search/neuroshard/greedy_grid.h"
#include "server/search/packing/find_packing.h"
#include "server/search/placement/placement.h"
#include "server/search/refine/plan_units.h"

namespace neuroshard {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
// Constructions that start over because a table found no place.
constexpr int kRepairRounds = 60;
// Limits on a shard's price, each a fifth below the one before.
constexpr int kLimits = 20;
constexpr double kNextLimit = 0.8;
// Local search gets further from a plan that saves work than from one that is even, where every
// saving makes some rank the slowest. So a start is judged by its cost plus so many times the mean
// over all ranks (of 1, 2, 4 and 8 the best for 100 tables on 128 ranks, on average by 3 %).
constexpr double kMeanWeight = 2;
// Of a restart: constructions to choose from, their limits as a share of the best cost, and by how
// much prices are off at most.
constexpr int kRestartConstructions = 30;
constexpr double kMinRestartLimit = 0.5;
constexpr double kMaxRestartLimit = 1.05;
constexpr double kPriceNoise = 0.2;
// Of the device memory, what tables take at first; less where they find no places.
constexpr std::array kFills = {0.97, 0.85, 0.5, 0.0};
// The same of the constructions to begin at, up to so many tables x ranks; beyond that what the first
// plan took.
constexpr std::array kCheapFills = {0.97, 0.85, 0.6};
constexpr std::size_t kMaxForEveryFill = 4'096;
// Of the device memory, what tables take at the least in a restart that chooses residencies anew;
// others have those of the plan before.
constexpr double kMinRestartFill = 0.6;
// Prices of a byte of host memory that are tried.
constexpr int kHostPriceRounds = 24;
// What a residency in host memory costs besides, so that a table is in device memory where it costs
// the same and there is room.
constexpr double kTieShare = 1e-6;
constexpr double kTieMs = 1e-9;
// Tables whose residencies are predicted in one batch, between two looks at the clock.
constexpr std::size_t kTablesAtOnce = 32;
// Dim caps of the greedy grid, and how many predictions it may ask for.
constexpr std::array kGridCaps = {1.0, 1.2, 1.5, kNoLimit};
constexpr std::size_t kGridEffort = 60'000;

bool CutsColumnsOnly(const PlanRequest& request, const CompiledRules& rules) {
  return request.demands_nothing() && !rules.has_host_memory() &&
         std::all_of(rules.tables().begin(), rules.tables().end(), [](const TableRules& of) {
           return of.types == TypeSet{ShardingType::kTableWise, ShardingType::kColumnWise};
         });
}

double PromiseMs(const Objective& objective) {
  double sum_ms = 0;
  for (int r = 0; r < objective.num_ranks(); ++r) sum_ms += objective.rank(r).total_ms();
  return objective.cost_ms() + kMeanWeight * sum_ms / objective.num_ranks();
}

// Whether the order by price and the order by the largest shard are the same.
bool OneShardAUnit(const Construction::Choice& choice) {
  return std::all_of(choice.begin(), choice.end(), [](const PricedLayout& p) {
    return SpreadOf(p.layout.type) == Spread::kRank;
  });
}

}  // namespace

InitialSolutions::InitialSolutions(SearchContext& context, const CompiledRules& rules,
                                   const TableLayouts& layouts, ShardTable& shard_table,
                                   MovePricer& pricer)
    : context_(context),
      rules_(rules),
      layouts_(layouts),
      shard_table_(shard_table),
      pricer_(pricer),
      construction_(context, rules, layouts, shard_table),
      available_bytes_(AvailableBytes(context.request())),
      residencies_(context.request().tables.size(), 0),
      urgency_(context.request().tables.size(), 0) {
  for (std::size_t t = 0; t < urgency_.size(); ++t) {
    // Who may only be on few ranks goes first.
    const RankSet& ranks = *rules_.of(static_cast<int>(t)).ranks;
    if (!ranks.all()) {
      urgency_[t] = 1000 * (rules_.num_ranks() - static_cast<int>(ranks.ranks().size()));
    }
  }
}

Status InitialSolutions::FindLegal(Solution& solution) {
  const PlanRequest& request = context_.request();
  for (const double fill : kFills) {
    if (!rules_.has_host_memory()) break;
    ChooseResidencies(fill);
    const auto layouts = construction_.FirstLayouts(residencies_, pricer_.surrogate());
    if (context_.stopped()) return absl::OkStatus();
    if (std::any_of(layouts.begin(), layouts.end(), [](const auto& of) { return of.empty(); })) {
      break;
    }
    const Construction::Choice choice = Choose(layouts, kNoLimit, solution, nullptr);
    for (const Construction::Order order :
         {Construction::Order::kByPrice, Construction::Order::kByBytes}) {
      if (construction_.Build(choice, order, urgency_, pricer_.surrogate(), solution) < 0) {
        return absl::OkStatus();
      }
      if (context_.ShouldStop()) return absl::OkStatus();
    }
    const bool all_on_device = std::all_of(residencies_.begin(), residencies_.end(),
                                           [](int residency) { return residency == 0; });
    if (all_on_device && (Repair(AllLayouts(), solution) || context_.stopped())) {
      return absl::OkStatus();
    }
  }
  const auto first = construction_.FirstLayouts(residencies_, pricer_.surrogate());
  if (context_.stopped()) return absl::OkStatus();
  for (std::size_t t = 0; t < first.size(); ++t) {
    if (first[t].empty()) {
      return WithReason(FailedPrecondition(
                            "no plan can exist: the constraints leave no sharding type to table {}",
                            TableNames(request.tables).ReferenceTo(static_cast<int>(t))),
                        FailureReason::kConstraintsConflict);
    }
  }
  const auto& surrogate = pricer_.surrogate();
  for (const Construction::Order order :
       {Construction::Order::kByPrice, Construction::Order::kByBytes}) {
    const Construction::Choice choice = Choose(first, kNoLimit, solution, nullptr);
    if (construction_.Build(choice, order, urgency_, surrogate, solution) < 0) {
      return absl::OkStatus();
    }
    if (context_.ShouldStop()) return absl::OkStatus();
  }
  const Layouts& all = AllLayouts();
  if (context_.stopped() || Repair(all, solution) || context_.stopped()) return absl::OkStatus();
  if (!CutsColumnsOnly(request, rules_)) {
    return WithReason(
        FailedPrecondition(
            "no plan was found: neither memory nor constraints are proven to exclude one"),
        FailureReason::kNoPlanFound);
  }
  NS_ASSIGN_OR_RETURN(const Placement packed,
                      FindPacking(request, Cutting::kColumns, context_.stop()));
  NS_RETURN_IF_ERROR(context_.Improve(packed));
  return absl::OkStatus();
}

bool InitialSolutions::Repair(const Layouts& layouts, Solution& solution) {
  const auto& surrogate = pricer_.surrogate();
  Construction::Choice choice = Choose(layouts, kNoLimit, solution, nullptr);
  for (int round = 0; round < kRepairRounds; ++round) {
    const auto order =
        round % 2 == 0 ? Construction::Order::kByBytes : Construction::Order::kByPrice;
    const int failed = construction_.Build(choice, order, urgency_, surrogate, solution);
    if (failed < 0) return true;
    if (context_.ShouldStop()) return false;
    const std::size_t t = static_cast<std::size_t>(failed);
    ++urgency_[t];
    // The next smaller shards, if there are.
    const PricedLayout* smaller = nullptr;
    for (const PricedLayout& layout : layouts[t]) {
      if (layout.peak_bytes >= choice[t].peak_bytes) continue;
      if (smaller == nullptr || layout.peak_bytes > smaller->peak_bytes) smaller = &layout;
    }
    if (smaller != nullptr) choice[t] = *smaller;
  }
  return false;
}

namespace {

// A step of a table's residency to one with more device memory.
struct Promotion {
  double gain_a_byte = 0;
  std::size_t table = 0;
  int residency = 0;
  std::int64_t bytes = 0;
  std::int64_t host_bytes = 0;  // that it adds

  bool operator<(const Promotion& other) const {
    return gain_a_byte != other.gain_a_byte ? gain_a_byte > other.gain_a_byte : table < other.table;
  }
};

struct ResidencyPoint {
  int residency = 0;
  double cost_ms = 0;
  std::int64_t bytes = 0;
  std::int64_t host_bytes = 0;
};

// The lower convex hull of (bytes, cost), from the fewest bytes on.
std::vector<ResidencyPoint> Hull(std::vector<ResidencyPoint> points) {
  std::stable_sort(points.begin(), points.end(), [](const auto& a, const auto& b) {
    return std::pair(a.bytes, a.cost_ms) < std::pair(b.bytes, b.cost_ms);
  });
  const auto ratio = [](const ResidencyPoint& a, const ResidencyPoint& b) {
    return (a.cost_ms - b.cost_ms) /
           static_cast<double>(std::max<std::int64_t>(1, b.bytes - a.bytes));
  };
  std::vector<ResidencyPoint> hull;
  for (const ResidencyPoint& point : points) {
    if (!hull.empty() && point.cost_ms >= hull.back().cost_ms) continue;
    while (hull.size() > 1 &&
           ratio(hull[hull.size() - 2], hull.back()) <= ratio(hull.back(), point)) {
      hull.pop_back();
    }
    hull.push_back(point);
  }
  return hull;
}

}  // namespace

void InitialSolutions::ChooseResidencies(double fill) {
  const std::vector<Table>& tables = context_.request().tables;
  std::vector<std::vector<ResidencyPoint>> points(tables.size());
  for (const bool known : {false, true}) {
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const TableRules& of = rules_.of(static_cast<int>(t));
      for (const int residency : *of.residencies) {
        const UnitShards shards = shard_table_.Shards(static_cast<int>(t), ShardingType::kTableWise,
                                                      tables[t].embedding_dim, 1, residency);
        if (!known) continue;
        double cost_ms = static_cast<double>(shard_table_.single_cost_ms(shards.full));
        if (residency != 0) cost_ms += kTieShare * cost_ms + kTieMs;
        points[t].push_back({residency, cost_ms, shard_table_.bytes(shards.full),
                             shard_table_.host_bytes(shards.full)});
      }
      if (!known && ((t + 1) % kTablesAtOnce == 0 || t + 1 == tables.size())) {
        shard_table_.PredictNew();
        if (context_.ShouldStop()) return;
      }
    }
  }
  double room = 0;
  for (int r = 0; r < rules_.num_ranks(); ++r) {
    room += std::max(0.0, static_cast<double>(available_bytes_[static_cast<std::size_t>(r)]));
  }
  room *= fill;
  double host_room = 0;
  for (const std::int64_t bytes : context_.request().topology.host_memory_bytes) {
    host_room += static_cast<double>(bytes);
  }
  // With a price on a byte of host memory, tables leave it rather than have a cache.
  double scale = 0;
  for (const auto& of : points) {
    for (const ResidencyPoint& point : of) {
      scale = std::max(
          scale, point.cost_ms / static_cast<double>(std::max<std::int64_t>(1, point.host_bytes)));
    }
  }
  double low = 0, high = 0;
  std::vector<int> fitting;  // at the last price at which hosts had room
  for (int round = 0; round < kHostPriceRounds; ++round) {
    const double price = round == 0 ? 0 : high == 0 ? scale : (low + high) / 2;
    double bytes = 0, host_bytes = 0;
    std::vector<Promotion> promotions;
    for (std::size_t t = 0; t < points.size(); ++t) {
      if (points[t].empty()) continue;
      std::vector<ResidencyPoint> priced = points[t];
      for (ResidencyPoint& point : priced)
        point.cost_ms += price * static_cast<double>(point.host_bytes);
      const std::vector<ResidencyPoint> hull = Hull(std::move(priced));
      residencies_[t] = hull.front().residency;
      bytes += static_cast<double>(hull.front().bytes);
      host_bytes += static_cast<double>(hull.front().host_bytes);
      for (std::size_t i = 1; i < hull.size(); ++i) {
        const std::int64_t more = hull[i].bytes - hull[i - 1].bytes;
        promotions.push_back({(hull[i - 1].cost_ms - hull[i].cost_ms) /
                                  static_cast<double>(std::max<std::int64_t>(1, more)),
                              t, hull[i].residency, more,
                              hull[i].host_bytes - hull[i - 1].host_bytes});
      }
    }
    std::stable_sort(promotions.begin(), promotions.end());
    std::vector<bool> full(points.size());
    for (const Promotion& step : promotions) {
      if (full[step.table]) continue;
      if (bytes + static_cast<double>(step.bytes) > room) {
        full[step.table] = true;
        continue;
      }
      bytes += static_cast<double>(step.bytes);
      host_bytes += static_cast<double>(step.host_bytes);
      residencies_[step.table] = step.residency;
    }
    const bool fits = host_bytes <= host_room;
    if (fits) fitting = residencies_;
    if (fits && price == 0) break;
    if (price == 0) continue;
    if (fits) {
      high = price;
    } else if (high == 0) {
      if (round > 1) break;  // no price is enough
      low = price;
      scale *= 1e3;
    } else {
      low = price;
    }
    if (fits && high - low < 0.01 * high) break;
  }
  if (!fitting.empty()) residencies_ = std::move(fitting);
  all_layouts_.clear();
}

void InitialSolutions::TakeResidencies(const Solution& solution) {
  std::vector<int> taken = residencies_;
  for (std::size_t t = 0; t < taken.size(); ++t) {
    const std::span<const int> units = solution.units_of_table(static_cast<int>(t));
    if (units.empty()) continue;
    const Unit& unit = solution.unit(units.front());
    if (unit.spread() != Spread::kCopies) taken[t] = unit.residency;
  }
  if (taken == residencies_) return;
  residencies_ = std::move(taken);
  all_layouts_.clear();
}

const InitialSolutions::Layouts& InitialSolutions::AllLayouts() {
  if (all_layouts_.empty()) {
    all_layouts_ = construction_.AllLayouts(residencies_, pricer_.surrogate());
  }
  return all_layouts_;
}

Construction::Choice InitialSolutions::Choose(const Layouts& layouts, double limit_ms,
                                              const Solution& solution, Random* noise) const {
  Construction::Choice choice;
  for (std::size_t t = 0; t < layouts.size(); ++t) {
    PricedLayout best;
    auto best_key = std::make_pair(kNoLimit, kNoLimit);
    for (PricedLayout p : layouts[t]) {
      if (noise != nullptr) {
        const double factor = 1 + kPriceNoise * noise->UniformReal();
        p.price_ms *= factor;
        p.peak_ms *= factor;
      }
      const bool copy = p.layout.type == ShardingType::kDataParallel;
      if (copy && layouts[t].size() > 1 && !solution.MayCopy(static_cast<int>(t))) continue;
      const auto key = std::make_pair(std::max(0.0, p.peak_ms - limit_ms), p.price_ms);
      if (key < best_key) {
        best = p;
        best_key = key;
      }
    }
    choice.push_back(best);
  }
  return choice;
}

std::vector<Construction::Choice> InitialSolutions::Choices(const Solution& solution) {
  const Layouts& layouts = AllLayouts();
  double limit_ms = 0;
  for (const auto& of_table : layouts) {
    double least = kNoLimit;
    for (const PricedLayout& p : of_table) least = std::min(least, p.price_ms);
    for (const PricedLayout& p : of_table) {
      if (p.price_ms == least) limit_ms = std::max(limit_ms, p.peak_ms);
    }
  }
  std::vector<Construction::Choice> choices;
  for (int i = 0; i < kLimits && !context_.ShouldStop(); ++i, limit_ms *= kNextLimit) {
    Construction::Choice choice = Choose(layouts, limit_ms, solution, nullptr);
    const auto same = [](const PricedLayout& a, const PricedLayout& b) {
      return a.layout == b.layout;
    };
    if (choices.empty() || !std::equal(choice.begin(), choice.end(), choices.back().begin(),
                                       choices.back().end(), same)) {
      choices.push_back(std::move(choice));
    }
  }
  return choices;
}

StatusOr<InitialSolutions::Found> InitialSolutions::FindCheap(Solution& solution) {
  std::vector<Construction::Choice> choices;
  const bool few = context_.request().tables.size() * context_.request().topology.devices.size() <=
                   kMaxForEveryFill;
  if (rules_.has_host_memory() && few) {
    for (const double fill : kCheapFills) {
      ChooseResidencies(fill);
      for (Construction::Choice& choice : Choices(solution)) choices.push_back(std::move(choice));
    }
  } else {
    choices = Choices(solution);
  }
  const bool columns_only = CutsColumnsOnly(context_.request(), rules_);
  std::vector<Unit> best;
  double best_ms = kNoLimit;
  std::vector<Unit> promising;
  double promising_ms = kNoLimit;
  bool same = true;
  if (context_.stopped()) return Found::kNone;
  const auto consider = [&](const Construction::Choice& choice, Construction::Order order) {
    if (construction_.Build(choice, order, urgency_, pricer_.surrogate(), solution) >= 0) return;
    pricer_.PriceSolution(solution);
    const double cost_ms = pricer_.objective().cost_ms();
    const bool is_best = cost_ms < best_ms;
    if (is_best) {
      best_ms = cost_ms;
      best = solution.Units();
    }
    if (columns_only) return;
    const double promise_ms = PromiseMs(pricer_.objective());
    if (promise_ms < promising_ms) {
      promising_ms = promise_ms;
      promising = solution.Units();
      same = is_best;
    } else if (is_best) {
      same = false;
    }
  };
  for (const Construction::Choice& choice : choices) {
    for (const Construction::Order order :
         {Construction::Order::kByPrice, Construction::Order::kByPeak}) {
      if (context_.WorkSpent() || context_.ShouldStop()) break;
      if (order == Construction::Order::kByPrice || !OneShardAUnit(choice)) consider(choice, order);
    }
  }
  if (columns_only) GridStart(choices, solution, best_ms, best);
  if (best.empty() || !Load(best, solution)) return Found::kNone;
  NS_RETURN_IF_ERROR(
      context_.ImproveIfCheaper(MakePlan(context_.request(), solution, best)).status());
  if (same) return Found::kCheapest;
  return Load(promising, solution) ? Found::kPromising : Found::kNone;
}

bool InitialSolutions::Restart(double best_cost_ms, Random& random, Solution& solution) {
  if (rules_.has_host_memory()) {
    if (random.Below(2) == 0) {
      TakeResidencies(solution);
    } else {
      ChooseResidencies(kMinRestartFill + (1 - kMinRestartFill) * random.UniformReal());
    }
  }
  const Layouts& layouts = AllLayouts();
  std::vector<Unit> promising;
  double promising_ms = kNoLimit;
  for (int i = 0; i < kRestartConstructions; ++i) {
    if (context_.WorkSpent() || context_.ShouldStop()) break;
    const double share =
        kMinRestartLimit + (kMaxRestartLimit - kMinRestartLimit) * random.UniformReal();
    const Construction::Choice choice = Choose(layouts, share * best_cost_ms, solution, &random);
    const auto order =
        random.Below(2) == 0 ? Construction::Order::kByPrice : Construction::Order::kByPeak;
    if (construction_.Build(choice, order, urgency_, pricer_.surrogate(), solution) >= 0) continue;
    pricer_.PriceSolution(solution);
    const double promise_ms = PromiseMs(pricer_.objective());
    if (promise_ms >= promising_ms) continue;
    promising_ms = promise_ms;
    solution.Units(promising);
  }
  return !promising.empty() && Load(promising, solution);
}

bool InitialSolutions::Load(const std::vector<Unit>& units, Solution& solution) {
  const bool large = CountShards(units) > kMaxShardsAtStop;
  solution.Clear();
  for (const Unit& unit : units) {
    if (large && context_.ShouldStop()) return false;
    solution.Add(unit);
  }
  pricer_.PriceSolution(solution);
  return true;
}

void InitialSolutions::GridStart(const std::vector<Construction::Choice>& choices,
                                 Solution& solution, double& best_ms, std::vector<Unit>& best) {
  GreedyGrid grid(context_, shard_table_);
  std::vector<SplitSequence> sequences;
  std::size_t effort = 0;
  const std::size_t ranks = context_.request().topology.devices.size();
  for (const Construction::Choice& choice : choices) {
    std::vector<Piece> pieces;
    for (std::size_t t = 0; t < choice.size(); ++t) {
      std::int64_t offset = 0;
      for (const std::int64_t cols :
           layouts_.Widths(static_cast<int>(t), choice[t].layout.blocks)) {
        pieces.push_back({static_cast<int>(t), offset, cols});
        offset += cols;
      }
    }
    effort += pieces.size() * ranks * kGridCaps.size();
    if (effort > kGridEffort) break;
    sequences.push_back(MakeSequence(std::move(pieces), shard_table_));
  }
  if (sequences.empty()) return;
  const std::vector<GridResult> results = grid.Run(sequences, kGridCaps, {});
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    if (!results[s].found() || results[s].cost_ms >= best_ms) continue;
    best_ms = results[s].cost_ms;
    LoadPlan(context_.request(), layouts_,
             BuildPlan(context_.request(), {sequences[s].pieces, results[s].rank_of_piece}),
             shard_table_, solution);
    best = solution.Units();
  }
}

}  // namespace neuroshard
