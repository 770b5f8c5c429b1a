#include "server/search/feasibility/find_feasible.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "common/base/positions.h"
#include "server/search/feasibility/bin_completion.h"
#include "server/search/feasibility/ejection_search.h"

namespace neuroshard {
namespace {

// Steps of the first turn, for each table and rank, and its effort: some 0.1 s and 0.2 s at most.
// A turn is twice as long as the one before; the third and later are for those who have the time.
constexpr std::int64_t kStepsOfAPair = 150;
constexpr std::int64_t kFewestSteps = 2'000;
constexpr std::int64_t kMaxSteps = 400'000;
constexpr std::int64_t kEffort = 300'000'000;
constexpr int kTurns = 2;
constexpr int kMaxDoublings = 10;

// Turns beyond those that everybody has end with the time that is left.
class TurnStop final : public StopSignal {
 public:
  explicit TurnStop(const StopSignal& outer) : outer_(outer) {}
  void GoBeyond() { beyond_ = true; }
  bool ShouldStop() const override {
    return outer_.ShouldStop() || (beyond_ && !outer_.HasTimeLeft());
  }

 private:
  const StopSignal& outer_;
  bool beyond_ = false;
};

// Each bundle to one rank as a whole. Empty: the rules say otherwise.
std::optional<PackingTask> TaskOf(const EjectionSearch& search, const CompiledRules& rules,
                                  bool migrates) {
  if (search.bundles().size() > kMaxBinItems) return std::nullopt;
  PackingTask task;
  const std::size_t ranks = static_cast<std::size_t>(rules.num_ranks());
  task.max_tables = rules.max_tables_per_rank();
  task.max_shards = rules.max_shards_per_rank();
  task.allows.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    task.room.push_back(search.ledger().left_bytes(static_cast<int>(r)));
  }
  for (std::size_t b = 0; b < search.bundles().size(); ++b) {
    const std::vector<int>& tables = search.bundles()[b];
    if (rules.of(tables.front()).ranks->ranks().empty()) return std::nullopt;
    PackingItem& item = task.items.emplace_back();
    item.bytes = search.BytesOnOneRank(static_cast<int>(b));
    item.tables = static_cast<int>(tables.size());
    item.shards = 0;
    const EjectionSearch::BundlePlacement placement =
        search.OnRank(static_cast<int>(b), rules.of(tables.front()).ranks->ranks().front());
    if (placement.empty()) return std::nullopt;
    for (const PlacedTable& placed_table : placement)
      item.shards += static_cast<int>(placed_table.shards.size());
    for (std::size_t r = 0; r < ranks; ++r) {
      task.allows[r].push_back(rules.of(tables.front()).ranks->contains(static_cast<int>(r)));
    }
  }
  task.alike = rules.host_groups().empty() && !migrates;
  for (const TableGroup& group : rules.separate_groups()) {
    if (group.level == GroupLevel::kHost) {
      task.alike = false;
      continue;
    }
    std::vector<int>& apart = task.apart.emplace_back();
    for (const int table : group.tables) apart.push_back(search.bundle_of(table));
  }
  return task;
}

}  // namespace

Feasible FindFeasible(const PlanRequest& request, const CompiledRules& rules,
                      const StopSignal& outer) {
  TurnStop stop(outer);
  EjectionSearch search(request, rules, stop);
  const std::vector<int> all = Positions<int>(search.bundles().size());
  const auto waiting = [&] {
    std::vector<int> bundles;
    std::copy_if(all.begin(), all.end(), std::back_inserter(bundles),
                 [&](int b) { return !search.placed(b); });
    return bundles;
  };
  const BinFiller filler = {[&](int rank, const std::vector<int>& bundles) {
                              for (std::size_t i = 0; i < bundles.size(); ++i) {
                                if (search.Put(bundles[i], search.OnRank(bundles[i], rank)))
                                  continue;
                                while (i-- > 0) search.Take(bundles[i]);
                                return false;
                              }
                              return true;
                            },
                            [&](int, const std::vector<int>& bundles) {
                              for (const int b : bundles) search.Take(b);
                            }};
  const auto task = TaskOf(search, rules, request.migration.has_value());
  const bool whole_only = std::ranges::all_of(
      rules.tables(), [](auto& of) { return of.types == TypeSet{ShardingType::kTableWise}; });
  const auto pairs =
      static_cast<std::int64_t>(request.tables.size() * request.topology.devices.size());
  const std::int64_t steps = std::clamp(kStepsOfAPair * pairs, kFewestSteps, kMaxSteps);
  for (int turn = 0; turn < kTurns || outer.HasTimeLeft(); ++turn) {
    if (turn >= kTurns) stop.GoBeyond();
    const std::int64_t times = std::int64_t{1} << std::min(turn, kMaxDoublings);
    search.GiveSteps(steps * times);
    if (search.PlaceByEjecting(waiting())) {
      return {.plan = search.ledger().MakePlan(), .none = false};
    }
    if (stop.ShouldStop()) break;
    if (!task.has_value()) continue;
    for (const int b : all) {
      if (search.placed(b)) search.Take(b);
    }
    switch (CompleteBins(*task, filler, stop, kEffort * times)) {
      case BinAnswer::kPacked:
        return {.plan = search.ledger().MakePlan(), .none = false};
      case BinAnswer::kNone:
        if (whole_only && !rules.has_off_device()) return {.plan = std::nullopt, .none = true};
        break;
      case BinAnswer::kUnknown:
        break;
    }
    if (stop.ShouldStop()) break;
  }
  return {};
}

}  // namespace neuroshard
