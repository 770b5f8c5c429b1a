#include "server/search/refine/perturbation.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/base/positions.h"
#include "server/search/refine/solution/lowest_place.h"

namespace neuroshard {
namespace {

// Ranks that are ruined together, at most.
constexpr int kMaxRuinedRanks = 3;
// By how much the order of a ruined rank's units is off at most.
constexpr double kOrderNoise = 0.3;
// The share of tables that a crossover takes from the second solution.
constexpr double kFromSecond = 0.3;

}  // namespace

Perturbation::Perturbation(Workbench& bench)
    : MoveTools(bench),
      placer_(bench),
      total_ms_(static_cast<std::size_t>(bench.solution.num_ranks())),
      from_second_(bench.context.request().tables.size()) {}

void Perturbation::MoveAtRandom(Random& random) {
  const auto ranks = static_cast<std::uint64_t>(solution_.num_ranks());
  const int moves = static_cast<int>(random.Between(2, 6));
  for (int i = 0; i < moves; ++i) {
    if (random.Below(2) == 0) {
      RandomRelayout(random);
      continue;
    }
    const int from = static_cast<int>(random.Below(ranks));
    const int to = static_cast<int>(random.Below(ranks));
    const auto units = solution_.units_on_rank(from);
    if (from == to || units.empty()) continue;
    const int id = units[random.Below(units.size())];
    Unit unit = solution_.unit(id);
    unit.place = to;
    if (!solution_.Allows(std::span(&id, 1), std::span(&unit, 1))) continue;
    solution_.Remove(id);
    solution_.Add(unit);
  }
}

bool Perturbation::RandomRelayout(Random& random) {
  const int table = static_cast<int>(random.Below(context_.request().tables.size()));
  if (solution_.fixed(table) != nullptr) return false;
  const std::vector<TableLayout>& layouts = placer_.LayoutsOf(table);
  TableLayout layout = placer_.Stay(table, layouts[random.Below(layouts.size())]);
  placer_.AddShards(table);
  if (rules_.has_off_device() && random.Below(2) == 0) {
    const std::vector<int>& residencies = *rules_.of(table).residencies;
    const int residency = residencies[random.Below(residencies.size())];
    if (rules_.Allows(table, residency, layout.type)) layout.residency = residency;
    placer_.AddShards(table, layout);
  }
  shard_table_.PredictNew();
  placer_.Reset();
  const std::span<const int> units = solution_.units_of_table(table);
  removed_.assign(units.begin(), units.end());
  placer_.Without(removed_);
  if (!placer_.Place(table, layout)) return false;
  if (!solution_.Allows(removed_, placer_.added())) return false;
  for (const int id : removed_) solution_.Remove(id);
  for (const Unit& unit : placer_.added()) solution_.Add(unit);
  return true;
}

bool Perturbation::RuinRanks(int rank, Random& random) {
  ranks_.assign(1, rank);
  const auto num_ranks = static_cast<std::uint64_t>(solution_.num_ranks());
  for (auto draws = random.Between(1, kMaxRuinedRanks - 1); draws > 0; --draws) {
    const int other = static_cast<int>(random.Below(num_ranks));
    if (std::ranges::find(ranks_, other) == ranks_.end()) ranks_.push_back(other);
  }
  unplaced_.clear();
  removed_.clear();
  for (const int ruined : ranks_) {
    double& total_ms = At(total_ms_, ruined);
    total_ms = pricer_.objective().rank(ruined).total_ms();
    const auto ids = solution_.units_on_rank(ruined);
    for (std::size_t left = ids.size(); left-- > 0;) {
      if (solution_.fixed(solution_.unit(ids[left]).table) != nullptr) continue;
      AddUnplaced(solution_.unit(ids[left]), kOrderNoise * random.UniformReal());
      removed_.push_back(ids[left]);
      total_ms -= unplaced_.back().share_ms;
    }
  }
  // Only now: what a unit takes depends on what else its rank has.
  for (const int id : removed_) solution_.Remove(id);
  return Place(ranks_);
}

bool Perturbation::Cross(std::span<const Unit> first, std::span<const Unit> second,
                         Random& random) {
  for (std::size_t t = 0; t < from_second_.size(); ++t) {
    from_second_[t] =
        random.UniformReal() < kFromSecond && solution_.fixed(static_cast<int>(t)) == nullptr;
  }
  const auto is_from_second = [&](const Unit& unit) { return At(from_second_, unit.table); };
  solution_.Clear();
  for (const Unit& unit : first) {
    if (!is_from_second(unit)) solution_.Add(unit);
  }
  for (const Unit& unit : second) {
    if (!is_from_second(unit) || unit.spread() == Spread::kRank) continue;
    if (!solution_.Allows({}, std::span(&unit, 1))) return false;
    solution_.Add(unit);
  }
  pricer_.PriceSolution();
  unplaced_.clear();
  for (const Unit& unit : second) {
    if (is_from_second(unit) && unit.spread() == Spread::kRank) AddUnplaced(unit, 0);
  }
  ranks_ = Positions<int>(total_ms_.size());
  total_ms_ = pricer_.objective().TotalsMs();
  return Place(ranks_);
}

void Perturbation::AddUnplaced(const Unit& unit, double noise) {
  const double share_ms = pricer_.ShareOf(unit.place, unit.shards.full);
  unplaced_.push_back({unit, share_ms, (1 + noise) * share_ms});
}

bool Perturbation::Place(std::span<const int> ranks) {
  context_.AddWork(Work::kConstruction, unplaced_.size() * ranks.size());
  std::ranges::stable_sort(unplaced_, std::greater{}, &Unplaced::order_ms);
  for (auto& [unit, share_ms, order_ms] : unplaced_) {
    const std::optional<Unit> placed = OnLowestPlace(
        unit, {.ranks = ranks}, total_ms_, solution_, shard_table_, [](int, int) { return true; },
        [&](const Unit& at) { return solution_.Allows({}, std::span(&at, 1)); });
    if (!placed) return false;
    solution_.Add(*placed);
    At(total_ms_, placed->place) += share_ms;
  }
  return true;
}

}  // namespace neuroshard
