#include "server/search/feasibility/migration_repair.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/base/positions.h"
#include "common/domain/held_shards.h"
#include "server/evaluate/rules/rule_state.h"
#include "server/search/core/fixed_tables.h"
#include "server/search/feasibility/ejection_search.h"
#include "server/search/placement/placement.h"

namespace neuroshard {
namespace {

// Sets of bundles that leave, which are tried one after the other.
constexpr std::size_t kMaxCovers = 48;
// Sets that are looked at for the cheapest covers.
constexpr int kMaxRepairSets = 200'000;
// Bundles that leave their places while all ways are tried.
constexpr int kMaxMoves = 2;
// Attempts to put a bundle somewhere, a table and a rank, for each of two: trying all ways, and
// ejecting. At least and at most.
constexpr std::int64_t kRepairStepsOfAPair = 300;
constexpr std::int64_t kFewestRepairSteps = 20'000;
constexpr std::int64_t kMaxRepairSteps = 300'000;

// Sets of tables that leave ranks that are too full, fewest bytes first, and get places elsewhere.
class Repair {
 public:
  Repair(const PlanRequest& request, const CompiledRules& rules, const StopSignal& stop)
      : request_(request),
        rules_(rules),
        stop_(stop),
        placed_(request, rules),
        search_(request, rules, placed_, stop) {
    const std::vector<const TablePlan*> stay = TablesThatCanStay(request, rules);
    for (int b = 0; b < placed_.size(); ++b) {
      const std::vector<int>& tables = placed_.tables_of(b);
      if (std::ranges::any_of(tables, [&](int table) { return At(stay, table) == nullptr; })) {
        continue;
      }
      search_.SetHome(b, Mapped(tables, [&](int table) {
                        return placed_.places().As(table, *At(stay, table));
                      }));
    }
  }

  std::optional<Plan> Run() {
    FindStaying();
    const std::vector<std::vector<int>> all = SetsThatLeave();
    const auto pairs =
        static_cast<std::int64_t>(request_.tables.size() * request_.topology.devices.size());
    const std::int64_t steps =
        std::clamp(kRepairStepsOfAPair * pairs, kFewestRepairSteps, kMaxRepairSteps);
    search_.GiveSteps(steps);
    for (int ejections = 0; ejections <= kMaxMoves && homeless_.size() <= kMaxMoves; ++ejections) {
      for (const std::vector<int>& leaving : all) {
        if (static_cast<int>(leaving.size()) + ejections > kMaxMoves) continue;
        if (Tried(leaving, ejections)) return placed_.ledger().MakePlan();
      }
    }
    std::int64_t steps_left = steps;
    for (std::size_t i = 0; i < all.size() && !stop_.ShouldStop(); ++i) {
      // Half of what is left each.
      search_.GiveSteps(steps_left / 2);
      steps_left -= steps_left / 2;
      if (search_.PlaceByEjecting(WaitingAfter(all[i]))) return placed_.ledger().MakePlan();
    }
    return std::nullopt;
  }

 private:
  // Calls visit(table, its home, shard) for each shard of the bundle at home.
  template <typename Visit>
  void ForEachShardAtHome(int bundle, const Visit& visit) const {
    const BundlePlacement& home = search_.home(bundle);
    for (std::size_t i = 0; i < home.size(); ++i) {
      for (const Shard& shard : home[i].shards) {
        visit(placed_.tables_of(bundle)[i], home[i], shard);
      }
    }
  }

  // Whether rules keep one of its tables in place, and so all on its rank.
  bool MustStay(int bundle) const {
    const std::vector<int>& tables = placed_.tables_of(bundle);
    return std::ranges::any_of(tables, [&](int table) { return rules_.of(table).kept != nullptr; });
  }

  // Whether the rules allow all of the bundle at home beside what stays already.
  bool CanStay(int bundle, RuleState& state) const {
    std::vector<std::pair<int, int>> added;
    bool allowed = !search_.home(bundle).empty();
    ForEachShardAtHome(bundle, [&](int table, const PlacedTable&, const Shard& shard) {
      allowed = allowed && state.Allows(table, shard.rank);
      if (!allowed) return;
      state.Add(table, shard.rank);
      added.emplace_back(table, shard.rank);
    });
    for (; !allowed && !added.empty(); added.pop_back()) {
      state.Remove(added.back().first, added.back().second);
    }
    return allowed;
  }

  void FindStaying() {
    RuleState state(rules_);
    std::vector<std::int64_t> taken(request_.topology.devices.size(), 0);
    stays_.assign(static_cast<std::size_t>(placed_.size()), false);
    std::vector<int> order = Positions<int>(stays_.size());
    std::stable_partition(order.begin(), order.end(), [&](int b) { return MustStay(b); });
    for (const int b : order) {
      if (!CanStay(b, state)) {
        homeless_.push_back(b);
        continue;
      }
      At(stays_, b) = true;
      ForEachShardAtHome(b, [&](int table, const PlacedTable& home, const Shard& shard) {
        At(taken, shard.rank) += placed_.ShardBytes(table, home, shard);
      });
    }
    const std::vector<std::int64_t> available = AvailableBytes(request_);
    for (std::size_t r = 0; r < available.size(); ++r) {
      if (taken[r] > std::max<std::int64_t>(0, available[r])) {
        overfull_.emplace_back(static_cast<int>(r), std::min(taken[r], taken[r] - available[r]));
      }
    }
  }

  // Bundles that leave together so that every rank has room for those that stay.
  std::vector<std::vector<int>> SetsThatLeave() const {
    std::vector<std::vector<std::vector<int>>> covers;  // by overfull rank
    for (const auto& [rank, over_bytes] : overfull_) {
      std::vector<int> there;
      std::vector<std::int64_t> bytes;
      std::vector<std::int64_t> weights;
      for (int b = 0; b < placed_.size(); ++b) {
        if (!At(stays_, b) || MustStay(b)) continue;
        std::int64_t frees = 0;
        double moves = 0;
        const auto add_if_there = [&, on = rank](int table, const PlacedTable& home,
                                                 const Shard& shard) {
          if (shard.rank != on) return;
          frees += placed_.ShardBytes(table, home, shard);
          moves += Cells(shard) * ElementBytes(At(request_.tables, table).weight_dtype);
        };
        ForEachShardAtHome(b, add_if_there);
        if (frees == 0) continue;
        there.push_back(b);
        bytes.push_back(frees);
        weights.push_back(static_cast<std::int64_t>(moves));
      }
      std::vector<std::vector<int>>& of_rank = covers.emplace_back();
      for (std::vector<int>& cover : CheapestCovers(bytes, weights, over_bytes, kMaxCovers)) {
        for (int& member : cover) member = At(there, member);
        of_rank.push_back(std::move(cover));
      }
    }
    // The cheapest everywhere, then others on one rank after the other.
    std::vector<std::vector<int>> all;
    const auto add = [&](std::size_t other_at, std::size_t other) {
      std::vector<int> leaving;
      for (std::size_t i = 0; i < covers.size(); ++i) {
        const std::vector<int>& cover = covers[i][i == other_at ? other : 0];
        leaving.insert(leaving.end(), cover.begin(), cover.end());
      }
      SortUnique(leaving);
      all.push_back(std::move(leaving));
    };
    add(0, 0);
    for (std::size_t other = 1; other < kMaxCovers && all.size() < kMaxCovers; ++other) {
      for (std::size_t i = 0; i < covers.size(); ++i) {
        if (other < covers[i].size()) add(i, other);
      }
    }
    return all;
  }

  // What stays is at home then, but for those that leave; nobody else has a place. Who waits for
  // one.
  std::vector<int> WaitingAfter(const std::vector<int>& leaving) {
    std::vector<int> come;
    for (int b = 0; b < static_cast<int>(stays_.size()); ++b) {
      const bool at_home = At(stays_, b) && !std::ranges::binary_search(leaving, b);
      if (at_home && placed_.IsAt(b, search_.home(b))) continue;
      if (placed_.placed(b)) placed_.Take(b);
      if (at_home) come.push_back(b);
    }
    for (const int b : come) placed_.Put(b, search_.home(b));
    std::vector<int> waiting = homeless_;
    waiting.insert(waiting.end(), leaving.begin(), leaving.end());
    return waiting;
  }

  bool Tried(const std::vector<int>& leaving, int ejections) {
    if (!search_.has_steps() || stop_.ShouldStop()) return false;
    return search_.PlaceByTrying(WaitingAfter(leaving), ejections);
  }

  const PlanRequest& request_;
  const CompiledRules& rules_;
  const StopSignal& stop_;
  PlacedBundles placed_;
  EjectionSearch search_;
  std::vector<bool> stays_;                             // by bundle, memory aside
  std::vector<int> homeless_;                           // bundles that cannot
  std::vector<std::pair<int, std::int64_t>> overfull_;  // ranks, and how many bytes too many
};

}  // namespace

std::optional<Plan> RepairPrevious(const PlanRequest& request, const CompiledRules& rules,
                                   const StopSignal& stop) {
  return Repair(request, rules, stop).Run();
}

std::vector<std::vector<int>> CheapestCovers(const std::vector<std::int64_t>& bytes,
                                             const std::vector<std::int64_t>& costs,
                                             std::int64_t needed, std::size_t most) {
  const std::vector<int> order =
      PositionsDescending<int>(bytes.size(), [&](int i) { return At(bytes, i); });
  std::vector<std::int64_t> rest(order.size() + 1, 0);  // bytes of order[i] and later
  for (std::size_t i = order.size(); i-- > 0;) {
    rest[i] = rest[i + 1] + At(bytes, order[i]);
  }
  using Cover = std::pair<std::int64_t, std::vector<int>>;
  std::vector<Cover> best;  // a heap, the dearest in front
  int sets_left = kMaxRepairSets;
  std::vector<int> chosen;
  const auto extend = [&](const auto& self, std::size_t from, std::int64_t sum,
                          std::int64_t cost) -> void {
    if (--sets_left < 0 || sum + rest[from] < needed) return;
    if (best.size() == most && cost >= best.front().first) return;
    if (sum >= needed) {
      // In descending bytes, so nobody can be left out unless the last can.
      best.emplace_back(cost, chosen);
      std::push_heap(best.begin(), best.end());
      if (best.size() > most) {
        std::pop_heap(best.begin(), best.end());
        best.pop_back();
      }
      return;
    }
    for (std::size_t i = from; i < order.size(); ++i) {
      const std::size_t item = static_cast<std::size_t>(order[i]);
      chosen.push_back(order[i]);
      self(self, i + 1, sum + bytes[item], cost + costs[item]);
      chosen.pop_back();
    }
  };
  extend(extend, 0, 0, 0);
  std::ranges::sort(best);
  std::vector<std::vector<int>> covers;
  for (Cover& cover : best) covers.push_back(std::move(cover.second));
  return covers;
}

}  // namespace neuroshard
