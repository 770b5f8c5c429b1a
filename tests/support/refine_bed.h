// What a part of local search needs around it, on a random request.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/random.h"
#include "common/base/stop_signal.h"
#include "server/search/refine/initial/initial_solutions.h"
#include "server/search/refine/objective/workbench.h"
#include "server/search/refine/solution/plan_units.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/random_constraints.h"
#include "tests/support/random_plan_request.h"

namespace neuroshard::testing {

// Up to 8 tables on up to 8 ranks, all sharding types; every second request has constraints.
class RefineBed {
 public:
  // `additive`: the model says that its compute adds up, which makes MovePricer add. Every third
  // model prices exchanges.
  explicit RefineBed(std::uint64_t seed, bool additive = false)
      : random_(seed),
        request(MakeRequest(random_)),
        model(BoundTo(request, ConcaveCostModel(seed, Properties(seed, additive)))),
        context(request, model, never_, nullptr),
        rules(request, TypeSet::All()),
        layouts(request, rules),
        bench(context, rules, layouts),
        initial(bench) {}

  // A legal solution, priced: some initial one and a few random units elsewhere. False: there is
  // none.
  bool LoadLegal() {
    if (!initial.FindLegal().ok() || context.has_plan()) return false;
    for (int i = 0; i < 6; ++i) {
      const int rank = static_cast<int>(random_.Below(static_cast<std::uint64_t>(num_ranks())));
      const auto units = bench.solution.units_on_rank(rank);
      if (units.empty()) continue;
      const int id = units[random_.Below(units.size())];
      Unit unit = bench.solution.unit(id);
      unit.place = static_cast<int>(random_.Below(static_cast<std::uint64_t>(num_ranks())));
      if (!bench.solution.Allows({&id, 1}, {&unit, 1})) continue;
      bench.solution.Remove(id);
      bench.solution.Add(unit);
    }
    bench.pricer.PriceSolution();
    return true;
  }

  // A unit of some layout of some table at some place, whether or not it has room there.
  Unit RandomUnit() {
    Solution& solution = bench.solution;
    while (true) {
      const int table = static_cast<int>(random_.Below(request.tables.size()));
      const std::vector<TableLayout> all = layouts.Of(table);
      if (all.empty()) continue;
      const TableLayout& layout = all[random_.Below(all.size())];
      const auto widths = layouts.Widths(table, layout.blocks);
      Unit unit{.table = table, .type = layout.type, .cols = widths[random_.Below(widths.size())]};
      int ranks = layout.holders;
      if (unit.spread() == Spread::kRank) {
        unit.place = static_cast<int>(random_.Below(static_cast<std::uint64_t>(num_ranks())));
      } else if (unit.spread() == Spread::kOneHost) {
        unit.place =
            static_cast<int>(random_.Below(static_cast<std::uint64_t>(solution.num_hosts())));
        ranks = solution.host(unit.place).count;
      } else if (unit.spread() == Spread::kSubset) {
        std::vector<int> subset;
        for (int r = 0; r < num_ranks(); ++r) subset.push_back(r);
        random_.Shuffle(subset);
        subset.resize(static_cast<std::size_t>(ranks));
        std::sort(subset.begin(), subset.end());
        unit.place = solution.AddSubset(subset);
      } else {
        ranks = num_ranks();
      }
      unit.shards = bench.shard_table.Shards(table, unit.type, unit.cols, ranks);
      bench.shard_table.PredictNew();
      return unit;
    }
  }

  int num_ranks() const { return request.topology.num_ranks(); }
  Plan PlanOf(const std::vector<Unit>& units) const {
    return MakePlan(request, bench.solution, units);
  }
  Random& random() { return random_; }

 private:
  static ModelProperties Properties(std::uint64_t seed, bool additive) {
    ModelProperties properties{.additive_compute = additive};
    if (seed % 3 == 2) properties.measured_steps = ConcaveSteps();
    return properties;
  }

  static PlanRequest MakeRequest(Random& random) {
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 8,
                                                     .max_ranks = 8,
                                                     .min_slack = 1.2,
                                                     .ranks_per_host = {1, 2, 3},
                                                     .torchrec_memory = true});
    if (random.Below(2) == 0) AddRandomConstraints(random, request, 8);
    return request;
  }

  Random random_;
  NeverStop never_;

 public:
  PlanRequest request;
  BoundCostModel model;
  SearchContext context;
  CompiledRules rules;
  TableLayouts layouts;
  Workbench bench;
  InitialSolutions initial;
};

}  // namespace neuroshard::testing
