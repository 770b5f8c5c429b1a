#include "server/search/feasibility/find_feasible.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

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

}  // namespace

Feasible FindFeasible(const PlanRequest& request, const CompiledRules& rules,
                      const StopSignal& outer) {
  TurnStop stop(outer);
  PlacedBundles placed(request, rules);
  EjectionSearch ejection(request, rules, placed, stop);
  const bool whole_only = std::ranges::all_of(
      rules.tables(), [](auto& of) { return of.types == TypeSet{ShardingType::kTableWise}; });
  const auto pairs =
      static_cast<std::int64_t>(request.tables.size() * request.topology.devices.size());
  const std::int64_t steps = std::clamp(kStepsOfAPair * pairs, kFewestSteps, kMaxSteps);
  for (int turn = 0; turn < kTurns || outer.HasTimeLeft(); ++turn) {
    if (turn >= kTurns) stop.GoBeyond();
    const std::int64_t times = std::int64_t{1} << std::min(turn, kMaxDoublings);
    ejection.GiveSteps(steps * times);
    if (ejection.PlaceByEjecting(placed.Waiting())) return {placed.ledger().MakePlan()};
    if (stop.ShouldStop()) break;
    const BinAnswer bins = CompleteBins(request, rules, placed, stop, kEffort * times);
    if (bins == BinAnswer::kPacked) return {placed.ledger().MakePlan()};
    if (bins == BinAnswer::kNone && whole_only && !rules.has_off_device()) return {.none = true};
    if (stop.ShouldStop()) break;
  }
  return {};
}

}  // namespace neuroshard
