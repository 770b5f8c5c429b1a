// Requests of which a plan is known, and whether a search finds one: how many are solved, proven to
// have none (which would be wrong), given up; and after how much time of the CPU.
//
// A request is made from a plan: 60 tables of 10^4 to 10^7 rows on two hosts of eight ranks, each
// table on a random rank. Families, `own` or `even` with what is to spare in per cent:
//   own     a rank has what the plan puts there, and so much more
//   even    the plan is even, all ranks have the same; with 0 it fills all of them to the byte
//   groups  own, and 12 tables are pinned to their hosts, 4 groups of 2 or 3 co-located, 4 groups
//           of 4 separate, and no rank has more than 5 tables
//   columns groups, and tables may be cut in columns
//   moved   own, with the plan in place; a rank shrinks by its largest table, which another rank
//           has room for, and 1.02 of that table may move
// feasibility_bench [--seeds 100] [--budget-ms N] [FAMILY-SPARE...]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/benchmark_tasks.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/domain/memory_use.h"
#include "server/cost/pricing_conditions.h"
#include "server/evaluate/check_plan.h"
#include "server/planner/budget_stop.h"
#include "server/search/run_search.h"

namespace neuroshard {
namespace {

constexpr int kTables = 60;
constexpr int kRanks = 16;
constexpr int kRanksPerHost = 8;
constexpr std::size_t kMaxTablesOfARank = 5;

template <typename T>
T ValueOrExit(StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  fmt::print(stderr, "{}\n", Message(value.status()));
  std::exit(1);
}

struct Family {
  std::string name;
  double spare = 0;
};

// A request and the rank of each table in the plan it is made from.
struct Made {
  PlanRequest request;
  std::vector<int> rank_of;
};

std::int64_t BytesOf(const PlanRequest& request, std::size_t table) {
  const Table& of = request.tables[table];
  return ShardMemory(request, of, of.num_embeddings, of.embedding_dim).total_bytes();
}

std::vector<std::int64_t> Held(const Made& made) {
  std::vector<std::int64_t> held(kRanks, 0);
  for (std::size_t t = 0; t < kTables; ++t) {
    held[static_cast<std::size_t>(made.rank_of[t])] += BytesOf(made.request, t);
  }
  return held;
}

Made MakeTables(Random& random) {
  Made made;
  PlanRequest& request = made.request;
  request.memory.rule = MemoryRule::kWeightsOnly;
  request.constraints.sharding_types = {ShardingType::kTableWise};
  for (int r = 0; r < kRanks; ++r) request.topology.devices.push_back({r / kRanksPerHost, 0});
  std::vector<std::size_t> count(kRanks, 0);
  for (int t = 0; t < kTables; ++t) {
    Table& table = request.tables.emplace_back();
    table.name = fmt::format("t{}", t);
    table.num_embeddings = static_cast<std::int64_t>(std::pow(10, 4 + 3 * random.UniformReal()));
    table.embedding_dim = 16 << random.Below(4);
    table.pooling_factor = 1 + static_cast<double>(random.Below(30));
    std::size_t rank = random.Below(kRanks);
    while (count[rank] == kMaxTablesOfARank) rank = random.Below(kRanks);
    ++count[rank];
    made.rank_of.push_back(static_cast<int>(rank));
  }
  return made;
}

// Tables in descending bytes to the rank that has least; the last of each rank grows so that all
// are as full as the fullest.
void MakeEven(Made& made) {
  PlanRequest& request = made.request;
  for (Table& table : request.tables) table.embedding_dim = 64;
  std::vector<std::size_t> order(kTables);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return BytesOf(request, a) > BytesOf(request, b);
  });
  std::vector<std::int64_t> held(kRanks, 0);
  std::vector<std::size_t> last(kRanks, 0);
  for (const std::size_t t : order) {
    const auto least = std::min_element(held.begin(), held.end());
    const auto rank = static_cast<std::size_t>(least - held.begin());
    *least += BytesOf(request, t);
    last[rank] = t;
    made.rank_of[t] = static_cast<int>(rank);
  }
  const std::int64_t most = *std::max_element(held.begin(), held.end());
  for (std::size_t r = 0; r < kRanks; ++r) {
    Table& table = request.tables[last[r]];
    table.num_embeddings += (most - held[r]) / (table.embedding_dim * 4);
  }
}

void AddGroups(Random& random, Made& made) {
  Constraints& constraints = made.request.constraints;
  std::vector<int> tables(kTables);
  std::iota(tables.begin(), tables.end(), 0);
  random.Shuffle(tables);
  for (std::size_t i = 0; i < 12; ++i) {
    TableRule rule;
    rule.tables = {tables[i]};
    rule.hosts = {made.rank_of[static_cast<std::size_t>(tables[i])] / kRanksPerHost};
    constraints.tables.push_back(std::move(rule));
  }
  const auto add = [&](std::vector<int> group, std::vector<TableGroup>& groups) {
    std::sort(group.begin(), group.end());
    groups.push_back({std::move(group), GroupLevel::kRank});
  };
  for (int rank = 0; rank < kRanks && constraints.colocate.size() < 4; ++rank) {
    std::vector<int> there;
    for (const int t : tables) {
      if (made.rank_of[static_cast<std::size_t>(t)] == rank) there.push_back(t);
    }
    there.resize(std::min<std::size_t>(there.size(), 2 + random.Below(2)));
    if (there.size() >= 2) add(std::move(there), constraints.colocate);
  }
  for (int g = 0; g < 4; ++g) {
    std::vector<int> group;
    std::vector<bool> used(kRanks, false);
    random.Shuffle(tables);
    for (const int t : tables) {
      const auto rank = static_cast<std::size_t>(made.rank_of[static_cast<std::size_t>(t)]);
      if (used[rank] || group.size() == 4) continue;
      used[rank] = true;
      group.push_back(t);
    }
    add(std::move(group), constraints.separate);
  }
  constraints.max_tables_per_rank = static_cast<int>(kMaxTablesOfARank);
}

void AddMigration(Random& random, Made& made) {
  PlanRequest& request = made.request;
  Migration& migration = request.migration.emplace();
  migration.previous.world_size = kRanks;
  migration.previous.local_world_size = kRanksPerHost;
  for (std::size_t t = 0; t < kTables; ++t) {
    const Table& table = request.tables[t];
    TablePlan& plan = migration.previous.tables.emplace_back();
    plan.name = table.name;
    plan.shards = {{0, table.num_embeddings, 0, table.embedding_dim, made.rank_of[t]}};
  }
  std::vector<std::int64_t> most(kRanks, 0);  // of a table of the rank
  for (std::size_t t = 0; t < kTables; ++t) {
    std::int64_t& of_rank = most[static_cast<std::size_t>(made.rank_of[t])];
    of_rank = std::max(of_rank, BytesOf(request, t));
  }
  std::size_t rank = random.Below(kRanks);
  while (most[rank] == 0) rank = random.Below(kRanks);
  const std::size_t other = (rank + 1 + random.Below(kRanks - 1)) % kRanks;
  request.topology.devices[rank].memory_bytes = Held(made)[rank] - most[rank];
  request.topology.devices[other].memory_bytes += most[rank];
  migration.budget_bytes = most[rank] + most[rank] / 50;
}

PlanRequest MakeRequest(const Family& family, std::uint64_t seed) {
  Random random(seed);
  Made made = MakeTables(random);
  if (family.name == "even") MakeEven(made);
  const std::vector<std::int64_t> held = Held(made);
  for (std::size_t r = 0; r < kRanks; ++r) {
    made.request.topology.devices[r].memory_bytes = static_cast<std::int64_t>(
        std::floor(static_cast<double>(held[r]) * (1 + family.spare / 100)));
  }
  if (family.name == "groups" || family.name == "columns") AddGroups(random, made);
  if (family.name == "columns") {
    made.request.constraints.sharding_types.push_back(ShardingType::kColumnWise);
  }
  if (family.name == "moved") AddMigration(random, made);
  made.request.search.strategy = "refine";
  made.request.search.seed = seed;
  return made.request;
}

// What the CPU did for this thread; other processes do not count.
double ThreadMs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

// Stops at the first plan, or where `other` does.
class StopAtFirstPlan final : public StopSignal, public SearchObserver {
 public:
  explicit StopAtFirstPlan(const StopSignal& other) : other_(other) {}
  void OnImprovement(const SearchResult&) override { found_ = true; }
  void OnProgress(double) override {}
  bool ShouldStop() const override { return found_ || other_.ShouldStop(); }
  bool HasTimeLeft() const override { return other_.HasTimeLeft(); }

 private:
  const StopSignal& other_;
  bool found_ = false;
};

void Run(const Family& family, int seeds, std::optional<std::chrono::milliseconds> budget,
         const std::shared_ptr<const CostModel>& model) {
  int solved = 0;
  int proven = 0;
  std::vector<double> times_ms;
  const SteadyClock clock;
  for (int seed = 1; seed <= seeds; ++seed) {
    const PlanRequest request = MakeRequest(family, static_cast<std::uint64_t>(seed));
    const BoundCostModel bound = model->Bind(ConditionsOf(request)).value();
    const NeverStop never;
    const double begin_ms = ThreadMs();
    const BudgetStop budget_stop(never, clock, budget);
    StopAtFirstPlan stop(budget_stop);
    const auto result = RunSearch(request, bound, stop, &stop);
    times_ms.push_back(ThreadMs() - begin_ms);
    if (result.ok()) {
      ++solved;
      if (!CheckPlan(request, result->plan).empty()) fmt::print("seed {}: illegal\n", seed);
    } else if (Message(result.status()).find("no plan can exist") != std::string::npos) {
      ++proven;
      fmt::print("seed {}: {}\n", seed, Message(result.status()));
    }
  }
  std::sort(times_ms.begin(), times_ms.end());
  const auto quantile = [&](double share) {
    return times_ms[static_cast<std::size_t>(share * static_cast<double>(times_ms.size() - 1))];
  };
  fmt::print(
      "{:<8} {:>4} %  solved {:>4} of {}  proven {}  gave up {:>3}   ms: median {:.1f}, 90 % "
      "{:.1f}, most {:.1f}\n",
      family.name, family.spare, solved, seeds, proven, seeds - solved - proven, quantile(0.5),
      quantile(0.9), times_ms.back());
}

int Main(int argc, char** argv) {
  int seeds = 100;
  std::optional<std::chrono::milliseconds> budget;
  std::vector<Family> families;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--seeds" && i + 1 < argc) {
      seeds = std::atoi(argv[++i]);
    } else if (argument == "--budget-ms" && i + 1 < argc) {
      budget = std::chrono::milliseconds(std::atoi(argv[++i]));
    } else {
      const std::size_t dash = argument.find('-');
      families.push_back({argument.substr(0, dash), std::atof(argument.c_str() + dash + 1)});
    }
  }
  if (families.empty()) {
    families = {{"own", 10},    {"own", 3},     {"own", 1},     {"own", 0},    {"even", 3},
                {"even", 1},    {"even", 0},    {"groups", 10}, {"groups", 3}, {"groups", 0},
                {"columns", 3}, {"columns", 0}, {"moved", 3}};
  }
  const auto model = ValueOrExit(LoadModel(ShippedModelDirectory(ShippedModel::kUniversal)));
  for (const Family& family : families) Run(family, seeds, budget, model);
  return 0;
}

}  // namespace
}  // namespace neuroshard

int main(int argc, char** argv) { return neuroshard::Main(argc, argv); }
