#include "server/search/refine/initial/initial_solutions.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/failure_reason.h"
#include "common/domain/memory_use.h"
#include "server/search/neuroshard/greedy_grid.h"
#include "server/search/packing/find_packing.h"
#include "server/search/placement/placement.h"
#include "server/search/refine/solution/plan_units.h"

namespace neuroshard {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
// Constructions that start over because a table found no place.
constexpr int kRepairRounds = 60;
// Limits on a shard's price, each a fifth below the one before.
constexpr int kLimits = 20;
constexpr double kNextLimit = 0.8;
// And limits as shares of what an even spread leaves a rank beside the tables that every rank has.
constexpr std::array kRoomShares = {1.0, 0.9, 0.8};
// Local search gets further from a plan that saves work than from one that is even, where every
// saving makes some rank the slowest. So a start is judged by its cost plus so many times the mean
// over all ranks (of 1, 2, 4 and 8 the best for 100 tables on 128 ranks, on average by 3 %).
constexpr double kMeanWeight = 2;
// The share of a quick search's work (of its own for a thorough one) that the first constructions
// may take as soon as one has succeeded; local search gains more for it (of 1, 1/2, 1/4 and 1/8 the
// best for 300 tables on 64 and 128 ranks).
constexpr double kConstructionShare = 0.125;
// A restart's constructions to choose from, their limits as a share of the best cost, and by how
// much prices are off at most.
constexpr int kRestartConstructions = 30;
constexpr double kMinRestartLimit = 0.5;
constexpr double kMaxRestartLimit = 1.05;
constexpr double kPriceNoise = 0.2;
// The share of device memory that tables take in the first plan; the next lower one where they find
// no places.
constexpr std::array kFills = {0.97, 0.85, 0.5, 0.0};
// The share that tables take in the constructions to begin at; the first two beyond so many tables
// x ranks.
constexpr std::array kCheapFills = {0.96, 0.9, 0.99, 0.75};
constexpr std::size_t kFillsOfMany = 2;
constexpr std::size_t kMaxForEveryFill = 4'096;
// How many of the choices, made under all limits for all of these shares, are built.
constexpr std::size_t kBuiltWithHostMemory = 12;
// The least share of device memory that tables take in a restart.
constexpr double kMinRestartFill = 0.85;
// Constructions price all residencies of tables that have at most so many, and not only those that
// whole tables would have.
constexpr std::size_t kFewResidencies = 4;
// What a residency that is not in device memory costs besides.
constexpr double kTieShare = 1e-6;
constexpr double kTieMs = 1e-9;
// Tables whose residencies are predicted in one batch, between two looks at the clock.
constexpr std::size_t kTablesAtOnce = 32;
// Dim caps of the greedy grid, and how many predictions it may ask for.
constexpr std::array kGridCaps = {1.0, 1.2, 1.5, kNoLimit};
constexpr std::size_t kGridEffort = 60'000;

bool CutsColumnsOnly(const PlanRequest& request, const CompiledRules& rules) {
  return request.demands_nothing() && !rules.has_off_device() &&
         std::ranges::all_of(rules.tables(), [](const TableRules& of) {
           return of.types == TypeSet{ShardingType::kTableWise, ShardingType::kColumnWise};
         });
}

double PromiseMs(const Objective& objective) {
  double sum_ms = 0;
  for (int r = 0; r < objective.num_ranks(); ++r) sum_ms += objective.rank(r).total_ms();
  return objective.cost_ms() + kMeanWeight * sum_ms / objective.num_ranks();
}

// So that of equal costs that in device memory is the lowest.
double TieBroken(double cost_ms, int residency) {
  return residency == 0 ? cost_ms : cost_ms + kTieShare * cost_ms + kTieMs;
}

// What the tables that every rank has take of each rank, in one choice of layouts.
struct OnEveryRank {
  double sum_ms = 0;
  double largest_ms = 0;
};

OnEveryRank TablesOnEveryRank(const Construction::Choice& choice) {
  OnEveryRank of;
  for (const PricedLayout& p : choice) {
    if (!TakesEveryRank(p.layout.type)) continue;
    of.sum_ms += p.peak_ms;
    of.largest_ms = std::max(of.largest_ms, p.peak_ms);
  }
  return of;
}

// Whether the order by price and the order by the largest shard are the same.
bool OneShardAUnit(const Construction::Choice& choice) {
  return std::ranges::all_of(
      choice, [](const PricedLayout& p) { return SpreadOf(p.layout.type) == Spread::kRank; });
}

}  // namespace

InitialSolutions::InitialSolutions(Workbench& bench)
    : MoveTools(bench),
      construction_(bench),
      residencies_(context_.request().tables.size(), {0}),
      urgency_(context_.request().tables.size(), 0) {
  for (std::size_t t = 0; t < urgency_.size(); ++t) {
    // Who may only be on few ranks goes first.
    const RankSet& ranks = *rules_.of(static_cast<int>(t)).ranks;
    if (!ranks.all()) {
      urgency_[t] = 1000 * (rules_.num_ranks() - static_cast<int>(ranks.ranks().size()));
    }
  }
}

bool InitialSolutions::Build(const Construction::Choice& choice, Construction::Order order,
                             const PricedLayouts& layouts, double limit_ms, bool is_restart) {
  for (std::size_t t = 0; t < layouts.size(); ++t) {
    if (layouts[t].empty() && solution_.fixed(static_cast<int>(t)) == nullptr) return false;
  }
  const bool falls_back = is_restart || rules_.has_off_device();
  const ConstructionFallback fallback{falls_back ? &layouts : nullptr, limit_ms};
  return construction_.Build(choice, order, urgency_, fallback) < 0;
}

bool InitialSolutions::BuildFirst(const Construction::Choice& choice,
                                  const PricedLayouts& layouts) {
  for (const Construction::Order order :
       {Construction::Order::kByPrice, Construction::Order::kByBytes}) {
    if (Build(choice, order, layouts, kNoLimit) || context_.ShouldStop()) return true;
  }
  return false;
}

Status InitialSolutions::FindLegal() {
  const PlanRequest& request = context_.request();
  const bool off_device = rules_.has_off_device();
  const std::span<const double> fills(kFills.data(), off_device ? kFills.size() : 1);
  for (const double fill : fills) {
    if (off_device) SetResidencies(std::span(&fill, 1), true);
    const PricedLayouts first = construction_.FirstLayouts(residencies_);
    if (context_.stopped()) return absl::OkStatus();
    if (std::ranges::any_of(first, [](const auto& of_table) { return of_table.empty(); })) {
      return FailedPrecondition("a table has no layout");
    }
    const Construction::Choice choice = Choose(first, {}, fill, nullptr);
    if (BuildFirst(choice, first)) return absl::OkStatus();
  }
  if (off_device) {
    SetResidencies(kCheapFills, true);
    for (const double fill : fills) {
      const Construction::Choice choice = Choose(AllLayouts(), {}, fill, nullptr);
      if (context_.stopped() || BuildFirst(choice, AllLayouts())) return absl::OkStatus();
    }
  }
  const PricedLayouts& all = AllLayouts();
  if (context_.stopped() || Repair(all) || context_.stopped()) return absl::OkStatus();
  if (!CutsColumnsOnly(request, rules_)) return FailedPrecondition("no construction fits");
  NS_ASSIGN_OR_RETURN(const Placement packed,
                      FindPacking(request, Cutting::kColumns, context_.stop()));
  NS_RETURN_IF_ERROR(context_.Improve(packed));
  return absl::OkStatus();
}

bool InitialSolutions::Repair(const PricedLayouts& layouts) {
  Construction::Choice choice = Choose(layouts, {}, kFills.front(), nullptr);
  for (int round = 0; round < kRepairRounds; ++round) {
    const auto order =
        round % 2 == 0 ? Construction::Order::kByBytes : Construction::Order::kByPrice;
    const int failed = construction_.Build(choice, order, urgency_);
    if (failed < 0) return true;
    if (context_.ShouldStop()) return false;
    const std::size_t t = static_cast<std::size_t>(failed);
    ++urgency_[t];
    // The next smaller shards, if there are.
    const PricedLayout* smaller = nullptr;
    for (const PricedLayout& layout : layouts[t]) {
      const auto peak_bytes = [](const PricedLayout& of) {
        return of.peak_bytes[MemoryTier::kDevice];
      };
      if (peak_bytes(layout) >= peak_bytes(choice[t])) continue;
      if (smaller == nullptr || peak_bytes(layout) > peak_bytes(*smaller)) smaller = &layout;
    }
    if (smaller != nullptr) choice[t] = *smaller;
  }
  return false;
}

bool InitialSolutions::PredictWholeTables() {
  const std::vector<Table>& tables = context_.request().tables;
  std::vector<int> shards;  // by table, in each of its residencies
  for (std::size_t t = 0; t < tables.size(); ++t) {
    whole_residencies_.push_back(*rules_.of(static_cast<int>(t)).residencies);
    const UnitShards whole = shard_table_.Shards(static_cast<int>(t), ShardingType::kTableWise,
                                                 tables[t].embedding_dim, 1);
    for (const int residency : whole_residencies_[t]) {
      shards.push_back(shard_table_.InResidency(whole, residency).full);
    }
    if ((t + 1) % kTablesAtOnce != 0 && t + 1 < tables.size()) continue;
    shard_table_.PredictNew();
    if (context_.ShouldStop()) return false;
  }
  whole_tables_.resize(tables.size());
  auto shard = shards.begin();
  std::vector<std::pair<int, int>> by_bytes;  // shards of a table and their residencies
  for (std::size_t t = 0; t < tables.size(); ++t) {
    by_bytes.clear();
    for (const int residency : whole_residencies_[t]) by_bytes.emplace_back(*shard++, residency);
    std::ranges::stable_sort(by_bytes, [&](const auto& a, const auto& b) {
      return shard_table_.bytes(a.first) < shard_table_.bytes(b.first);
    });
    whole_residencies_[t].clear();
    whole_tables_[t].reserve(by_bytes.size());
    for (const auto& [id, residency] : by_bytes) {
      whole_residencies_[t].push_back(residency);
      const double cost_ms = static_cast<double>(shard_table_.shard_cost_ms(id));
      whole_tables_[t].push_back({TieBroken(cost_ms, residency), shard_table_.tier_bytes(id)});
    }
  }
  return true;
}

void InitialSolutions::SetResidencies(std::span<const double> fills, bool with_ends) {
  if (whole_tables_.empty() && !PredictWholeTables()) return;
  Construction::Residencies found(whole_tables_.size());
  const auto add = [&](std::size_t t, int residency) {
    if (std::ranges::count(found[t], residency) == 0) found[t].push_back(residency);
  };
  for (const double fill : fills) {
    const std::vector<int> chosen =
        FillMemories(whole_tables_, construction_.room_bytes(), fill,
                     KnapsackMethod::kDynamicProgramming, [&] { return context_.ShouldStop(); });
    for (std::size_t t = 0; t < found.size(); ++t) {
      if (chosen[t] >= 0) add(t, whole_residencies_[t][static_cast<std::size_t>(chosen[t])]);
    }
  }
  for (std::size_t t = 0; t < found.size(); ++t) {
    const std::vector<int>& all = *rules_.of(static_cast<int>(t)).residencies;
    if (all.empty() || !with_ends) continue;
    for (const int residency : rules_.LeastOnDevice(static_cast<int>(t))) add(t, residency);
    add(t, all.back());
    if (all.size() > kFewResidencies) continue;
    for (const int residency : all) add(t, residency);
  }
  if (found == residencies_) return;
  residencies_ = std::move(found);
  all_layouts_.clear();
}

const PricedLayouts& InitialSolutions::AllLayouts() {
  if (!all_layouts_.empty()) return all_layouts_;
  all_layouts_ = construction_.AllLayouts(residencies_);
  if (!rules_.has_off_device()) return all_layouts_;
  for (std::vector<PricedLayout>& of_table : all_layouts_) {
    const auto is_too_large = [&](const PricedLayout& p) {
      return construction_.IsTooLarge(p.peak_bytes);
    };
    if (!std::ranges::all_of(of_table, is_too_large)) {
      std::erase_if(of_table, is_too_large);
    }
  }
  return all_layouts_;
}

Construction::Choice InitialSolutions::Choose(const PricedLayouts& layouts, const Limit& limit,
                                              double fill, Random* noise) {
  const bool off_device = rules_.has_off_device();
  holdings_.resize(off_device ? layouts.size() : 0);
  Construction::Choice choice(layouts.size());
  for (std::size_t t = 0; t < layouts.size(); ++t) {
    if (off_device) {
      holdings_[t].clear();
      holdings_[t].reserve(layouts[t].size());
    }
    auto best_key = std::make_pair(kNoLimit, kNoLimit);
    for (const PricedLayout& p : layouts[t]) {
      const double factor = noise != nullptr ? 1 + kPriceNoise * noise->UniformReal() : 1;
      const double price_ms = factor * p.price_ms;
      const bool is_spared = limit.spares_every_rank && TakesEveryRank(p.layout.type);
      const double excess_ms = is_spared ? 0 : std::max(0.0, factor * p.peak_ms - limit.ms);
      if (off_device) {
        const double cost_ms = TieBroken(price_ms, p.layout.residency);
        holdings_[t].push_back({cost_ms + rules_.num_ranks() * excess_ms, p.bytes});
        continue;
      }
      const auto key = std::make_pair(excess_ms, price_ms);
      if (key < best_key) {
        choice[t] = p;
        choice[t].price_ms = price_ms;
        choice[t].peak_ms *= factor;
        best_key = key;
      }
    }
  }
  if (!off_device) return choice;
  // The best choice by prices with noise is worth no more than another one.
  const KnapsackMethod method =
      noise != nullptr ? KnapsackMethod::kGreedy : KnapsackMethod::kDynamicProgramming;
  const std::vector<int> chosen = FillMemories(holdings_, construction_.room_bytes(), fill, method,
                                               [&] { return context_.ShouldStop(); });
  for (std::size_t t = 0; t < layouts.size(); ++t) {
    if (chosen[t] >= 0) choice[t] = layouts[t][static_cast<std::size_t>(chosen[t])];
  }
  return choice;
}

std::vector<InitialSolutions::LimitedChoice> InitialSolutions::Choices(double fill) {
  const PricedLayouts& layouts = AllLayouts();
  const Construction::Choice cheapest = Choose(layouts, {}, fill, nullptr);
  double limit_ms = 0;
  if (rules_.has_off_device()) {
    for (const PricedLayout& p : cheapest) limit_ms = std::max(limit_ms, p.peak_ms);
  } else {
    for (const auto& of_table : layouts) {
      double least = kNoLimit;
      for (const PricedLayout& p : of_table) least = std::min(least, p.price_ms);
      for (const PricedLayout& p : of_table) {
        if (p.price_ms == least) limit_ms = std::max(limit_ms, p.peak_ms);
      }
    }
  }
  std::vector<LimitedChoice> choices;
  // Where one of the tables on every rank takes more than an even spread leaves for all others, no
  // limit on both makes sense.
  const OnEveryRank everywhere = TablesOnEveryRank(cheapest);
  double room_ms = -everywhere.sum_ms;
  for (const PricedLayout& p : cheapest) room_ms += p.price_ms / rules_.num_ranks();
  for (const double share : kRoomShares) {
    if (room_ms <= 0 || everywhere.largest_ms <= room_ms) break;
    const Limit limit = {share * room_ms, true};
    choices.push_back({Choose(layouts, limit, fill, nullptr), limit.ms});
  }
  for (int i = 0; i < kLimits && !context_.ShouldStop(); ++i, limit_ms *= kNextLimit) {
    Construction::Choice choice = Choose(layouts, {limit_ms}, fill, nullptr);
    const auto same = [](const PricedLayout& a, const PricedLayout& b) {
      return a.layout == b.layout;
    };
    if (choices.empty() || !std::equal(choice.begin(), choice.end(), choices.back().choice.begin(),
                                       choices.back().choice.end(), same)) {
      choices.push_back({std::move(choice), limit_ms});
    }
  }
  return choices;
}

void InitialSolutions::KeepPromising(std::vector<LimitedChoice>& choices) const {
  const auto promise_ms = [&](const LimitedChoice& limited) {
    double price_ms = 0, peak_ms = 0;
    for (const PricedLayout& p : limited.choice) {
      price_ms += p.price_ms;
      peak_ms = std::max(peak_ms, p.peak_ms);
    }
    return std::max(peak_ms, price_ms / rules_.num_ranks());
  };
  std::ranges::stable_sort(choices, [&](const LimitedChoice& a, const LimitedChoice& b) {
    return promise_ms(a) < promise_ms(b);
  });
  if (choices.size() > kBuiltWithHostMemory) choices.resize(kBuiltWithHostMemory);
}

bool InitialSolutions::CutAll() {
  const Construction::Choice choice = Choose(AllLayouts(), {.ms = 0}, kFills.front(), nullptr);
  return !context_.ShouldStop() &&
         Build(choice, Construction::Order::kByPeak, AllLayouts(), kNoLimit);
}

StatusOr<InitialSolutions::Found> InitialSolutions::FindCheap() {
  std::vector<LimitedChoice> choices;
  const bool few = context_.request().tables.size() * context_.request().topology.devices.size() <=
                   kMaxForEveryFill;
  const std::size_t num_fills = !rules_.has_off_device() ? 1
                                : few                    ? kCheapFills.size()
                                                         : kFillsOfMany;
  const std::span<const double> fills(kCheapFills.data(), num_fills);
  if (rules_.has_off_device()) SetResidencies(fills, few);
  for (const double fill : fills) {
    for (LimitedChoice& choice : Choices(fill)) choices.push_back(std::move(choice));
  }
  if (rules_.has_off_device()) KeepPromising(choices);
  const bool columns_only = CutsColumnsOnly(context_.request(), rules_);
  Best best;
  Best promising;
  bool same = true;
  const auto now = [&] { return solution_.Units(); };
  if (context_.stopped()) return Found::kNone;
  const auto consider = [&](const LimitedChoice& limited, Construction::Order order) {
    const Construction::Choice& choice = limited.choice;
    if (!Build(choice, order, AllLayouts(), limited.limit_ms)) return;
    pricer_.PriceSolution();
    const bool is_best = best.Offer(pricer_.objective().cost_ms(), now);
    if (columns_only) return;
    const bool is_promising = promising.Offer(PromiseMs(pricer_.objective()), now);
    if (is_best || is_promising) same = is_best && is_promising;
  };
  const double most_ns = context_.work_ns() + kConstructionShare * context_.least_work_ns();
  for (const LimitedChoice& choice : choices) {
    for (const Construction::Order order :
         {Construction::Order::kByPrice, Construction::Order::kByPeak}) {
      if (context_.WorkSpent() || context_.ShouldStop()) break;
      if (!best.units.empty() && context_.work_ns() >= most_ns) break;
      if (order == Construction::Order::kByPrice || !OneShardAUnit(choice.choice))
        consider(choice, order);
    }
  }
  if (columns_only) OfferGrid(choices, best);
  if (best.units.empty() || !Load(best.units)) return Found::kNone;
  NS_RETURN_IF_ERROR(
      context_.ImproveIfCheaper(MakePlan(context_.request(), solution_, best.units)).status());
  if (same) return Found::kCheapest;
  return Load(promising.units) ? Found::kPromising : Found::kNone;
}

bool InitialSolutions::Restart(double best_cost_ms, Random& random) {
  // A search beside the first one, or from a plan in place, has looked at none yet.
  if (rules_.has_off_device() && whole_tables_.empty()) SetResidencies(kCheapFills, true);
  const PricedLayouts& layouts = AllLayouts();
  if (context_.stopped()) return false;
  Best promising;
  double room_ms = best_cost_ms;  // of a rank, beside the tables that every rank has
  for (int i = 0; i < kRestartConstructions; ++i) {
    if (context_.WorkSpent() || context_.ShouldStop()) break;
    const double share =
        kMinRestartLimit + (kMaxRestartLimit - kMinRestartLimit) * random.UniformReal();
    // The other limits are too large for what the tables on every rank leave.
    const bool in_room = i % 2 == 1 && room_ms < kMinRestartLimit * best_cost_ms;
    const double limit_ms = share * (in_room ? room_ms : best_cost_ms);
    const double fill = rules_.has_off_device()
                            ? kMinRestartFill + (1 - kMinRestartFill) * random.UniformReal()
                            : 1;
    const Construction::Choice choice = Choose(layouts, {limit_ms, in_room}, fill, &random);
    room_ms = std::max(0.0, best_cost_ms - TablesOnEveryRank(choice).sum_ms);
    const auto order =
        random.Below(2) == 0 ? Construction::Order::kByPrice : Construction::Order::kByPeak;
    if (!Build(choice, order, layouts, limit_ms, true)) continue;
    pricer_.PriceSolution();
    promising.Offer(PromiseMs(pricer_.objective()), [&] { return solution_.Units(); });
  }
  return !promising.units.empty() && Load(promising.units);
}

bool InitialSolutions::Load(const std::vector<Unit>& units) {
  const bool large = CountShards(units) > kMaxShardsAtStop;
  solution_.Clear();
  for (const Unit& unit : units) {
    if (large && context_.ShouldStop()) return false;
    solution_.Add(unit);
  }
  pricer_.PriceSolution();
  return true;
}

void InitialSolutions::OfferGrid(const std::vector<LimitedChoice>& choices, Best& best) {
  GreedyGrid grid(context_, shard_table_);
  std::vector<SplitSequence> sequences;
  std::size_t effort = 0;
  const std::size_t ranks = context_.request().topology.devices.size();
  for (const auto& [choice, limit_ms] : choices) {
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
    if (!results[s].found()) continue;
    best.Offer(results[s].cost_ms, [&] {
      const Plan plan =
          BuildPlan(context_.request(), {sequences[s].pieces, results[s].rank_of_piece});
      return UnitsOf(context_.request(), layouts_, plan, shard_table_, solution_);
    });
  }
}

}  // namespace neuroshard
