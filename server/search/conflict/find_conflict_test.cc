#include <gmock/gmock.h>

#include <array>
#include <set>

#include "common/base/failure_reason.h"
#include "common/base/violations.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/rules/demands.h"
#include "server/evaluate/rules/residency.h"
#include "server/search/conflict/find_any_plan.h"
#include "server/search/conflict/infeasibility.h"
#include "server/search/testing/all_plans.h"
#include "tests/support/random_constraints.h"
#include "tests/support/random_migration.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::AddRandomConstraints;
using ::neuroshard::testing::AddRandomMigration;
using ::neuroshard::testing::RandomPlanRequest;
using ::neuroshard::testing::RandomRequestShape;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;
using enum ShardingType;

// The first of them.
std::optional<Conflict> FindConflict(const PlanRequest& request, TypeSet types) {
  std::vector<Conflict> conflicts = FindConflicts(request, types);
  if (conflicts.empty()) return std::nullopt;
  return std::move(conflicts.front());
}

// Four tables of 1000 rows and 16 columns, 64000 bytes each, on two hosts of two ranks with 100 kB.
class FindConflictTest : public ::testing::Test {
 protected:
  FindConflictTest() {
    request_.memory.rule = MemoryRule::kWeightsOnly;
    for (const char* name : {"a", "b", "c", "d"}) {
      Table table;
      table.name = name;
      table.num_embeddings = 1000;
      table.embedding_dim = 16;
      request_.tables.push_back(table);
    }
    for (const int host : {0, 0, 1, 1}) request_.topology.devices.push_back({host, 100'000});
  }

  TableRule& Rule(std::vector<int> tables) {
    constraints_.tables.emplace_back();
    constraints_.tables.back().tables = std::move(tables);
    return constraints_.tables.back();
  }
  // The paths of the conflict; none if there is none.
  std::vector<std::string> Paths() const {
    std::vector<std::string> paths;
    if (const auto conflict = FindConflict(request_, types_)) {
      for (const ConflictingDemand& demand : conflict->demands) paths.push_back(demand.path);
    }
    return paths;
  }
  void MakeRoomy() {
    for (Device& device : request_.topology.devices) device.memory_bytes = 1 << 30;
  }

  PlanRequest request_;
  TypeSet types_ = TypeSet::All();
  Constraints& constraints_ = request_.constraints;
};

TEST_F(FindConflictTest, NoDemandsNoConflict) { EXPECT_THAT(Paths(), IsEmpty()); }

TEST_F(FindConflictTest, RankDemandsThatLeaveNoRank) {
  Rule({0, 1}).ranks = {0, 1, 2};
  Rule({1, 2}).forbidden_hosts = {0};
  Rule({0, 3}).hosts = {0};
  EXPECT_THAT(Paths(), IsEmpty());
  Rule({1}).forbidden_ranks = {2};
  EXPECT_THAT(Paths(),
              ElementsAre("constraints.tables[0].ranks", "constraints.tables[1].forbidden_hosts",
                          "constraints.tables[3].forbidden_ranks"));
  constraints_.tables[3].forbidden_ranks = {};
  Rule({0}).hosts = {1};
  EXPECT_THAT(Paths(), ElementsAre("constraints.tables[2].hosts", "constraints.tables[4].hosts"));
}

TEST_F(FindConflictTest, TypesThatExcludeEachOther) {
  constraints_.sharding_types = {kTableWise};
  Rule({0}).sharding_types = {kRowWise, kColumnWise};
  Rule({0, 1}).max_shards = 2;
  EXPECT_THAT(Paths(), IsEmpty());
  Rule({0}).sharding_types = {kRowWise};
  EXPECT_THAT(Paths(), ElementsAre("constraints.tables[1].max_shards",
                                   "constraints.tables[2].sharding_types"));
}

TEST_F(FindConflictTest, AKernelAndTheTypesOfTheRest) {
  MakeRoomy();
  Rule({2}).compute_kernels = {ComputeKernel::kDense};
  EXPECT_THAT(Paths(), IsEmpty());
  types_ = {kTableWise, kColumnWise};
  EXPECT_THAT(Paths(), ElementsAre("constraints.tables[0].compute_kernels", "cost_model"));
  constraints_.sharding_types = {kRowWise};
  EXPECT_THAT(Paths(),
              ElementsAre("constraints.tables[0].compute_kernels", "constraints.sharding_types"));
}

TEST_F(FindConflictTest, ATypeThatTakesAllRanksAndAForbiddenOne) {
  Rule({0, 1}).sharding_types = {kRowWise, kDataParallel};
  Rule({2, 3}).forbidden_ranks = {1};
  EXPECT_THAT(Paths(), IsEmpty());
  Rule({1, 2}).forbidden_ranks = {3};
  EXPECT_THAT(Paths(), ElementsAre("constraints.tables[0].sharding_types",
                                   "constraints.tables[2].forbidden_ranks"));
}

TEST_F(FindConflictTest, CoLocatedTablesWithoutACommonPlace) {
  MakeRoomy();
  constraints_.colocate = {{{0, 1}, GroupLevel::kRank}, {{1, 2}, GroupLevel::kHost}};
  Rule({0}).ranks = {0, 2};
  Rule({2}).ranks = {1, 2};
  EXPECT_THAT(Paths(), IsEmpty());
  Rule({1}).forbidden_ranks = {0, 2};
  EXPECT_THAT(Paths(),
              ElementsAre("constraints.tables[0].ranks", "constraints.tables[2].forbidden_ranks",
                          "constraints.colocate[0]"));
  constraints_.tables.pop_back();
  Rule({2}).hosts = {1};
  Rule({0}).hosts = {0};
  EXPECT_THAT(Paths(), ElementsAre("constraints.tables[2].hosts", "constraints.tables[3].hosts",
                                   "constraints.colocate[0]", "constraints.colocate[1]"));
}

TEST_F(FindConflictTest, CoLocatedTablesThatDoNotFitTogether) {
  constraints_.colocate = {{{0, 1}, GroupLevel::kHost}};
  constraints_.sharding_types = {kTableWise, kColumnWise};
  EXPECT_THAT(Paths(), IsEmpty());
  constraints_.colocate[0].level = GroupLevel::kRank;
  EXPECT_THAT(Paths(), ElementsAre("constraints.colocate[0]", "topology"));
  MakeRoomy();
  EXPECT_THAT(Paths(), IsEmpty());
  constraints_.max_tables_per_rank = 1;
  EXPECT_THAT(Paths(), ElementsAre("constraints.colocate[0]", "constraints.max_tables_per_rank"));
}

TEST_F(FindConflictTest, TogetherAndApart) {
  MakeRoomy();
  constraints_.colocate = {{{0, 1}, GroupLevel::kHost}};
  constraints_.separate = {{{0, 1, 2}, GroupLevel::kRank}};
  EXPECT_THAT(Paths(), IsEmpty());
  constraints_.separate.push_back({{1, 0}, GroupLevel::kHost});
  std::sort(constraints_.separate[1].tables.begin(), constraints_.separate[1].tables.end());
  EXPECT_THAT(Paths(), ElementsAre("constraints.colocate[0]", "constraints.separate[1]"));
  constraints_.separate.pop_back();
  constraints_.colocate[0].level = GroupLevel::kRank;
  EXPECT_THAT(Paths(), ElementsAre("constraints.colocate[0]", "constraints.separate[0]"));
}

TEST_F(FindConflictTest, SeparateTablesWithTooFewRanks) {
  constraints_.separate = {{{0, 1, 2, 3}, GroupLevel::kRank}};
  Rule({0, 1}).ranks = {0, 1};
  EXPECT_THAT(Paths(), IsEmpty());
  Rule({2}).ranks = {1};
  EXPECT_THAT(Paths(), ElementsAre("constraints.tables[0].ranks", "constraints.tables[1].ranks",
                                   "constraints.separate[0]"));
  constraints_.tables.clear();
  constraints_.separate[0].level = GroupLevel::kHost;
  EXPECT_THAT(Paths(), ElementsAre("constraints.separate[0]"));
}

TEST_F(FindConflictTest, LimitsPerRank) {
  MakeRoomy();
  constraints_.max_tables_per_rank = 1;
  EXPECT_THAT(Paths(), IsEmpty());
  Rule({1}).sharding_types = {kDataParallel};
  EXPECT_THAT(Paths(), ElementsAre("constraints.tables[0].sharding_types",
                                   "constraints.max_tables_per_rank"));
  constraints_.max_tables_per_rank = 2;
  constraints_.max_shards_per_rank = 2;
  EXPECT_THAT(Paths(), IsEmpty());
  Rule({0, 2}).hosts = {0};
  Rule({3}).ranks = {1};
  EXPECT_THAT(Paths().size(), 4);
}

TEST_F(FindConflictTest, TorchRecsBlocksNeedRanks) {
  MakeRoomy();
  constraints_.column_rule = ColumnRule::kTorchRec;
  Rule({0}).min_column_width = 4;
  Rule({0}).sharding_types = {kColumnWise};
  Rule({0}).distinct_ranks = true;
  EXPECT_THAT(Paths(), IsEmpty());
  Rule({0}).forbidden_ranks = {3};
  EXPECT_THAT(
      Paths(),
      ElementsAre("constraints.tables[1].sharding_types", "constraints.tables[2].distinct_ranks",
                  "constraints.tables[3].forbidden_ranks", "constraints.column_rule"));
}

TEST_F(FindConflictTest, MemoryOfPinnedTables) {
  Rule({0, 1}).ranks = {0, 1};
  EXPECT_THAT(Paths(), IsEmpty());
  Rule({2}).hosts = {0};
  Rule({3}).hosts = {0};
  EXPECT_THAT(Paths(), ElementsAre("constraints.tables[0].ranks", "constraints.tables[1].hosts",
                                   "constraints.tables[2].hosts", "topology"));
  request_.topology.devices[0].memory_bytes = 1 << 30;
  EXPECT_THAT(Paths(), IsEmpty());
}

TEST_F(FindConflictTest, ShardsThatFitNowhere) {
  request_.tables[2].num_embeddings = 2000;
  Rule({2}).min_column_width = 8;
  constraints_.sharding_types = {kTableWise, kColumnWise};
  EXPECT_THAT(Paths(), IsEmpty());
  Rule({2}).min_column_width = 12;
  EXPECT_THAT(Paths(), ElementsAre("constraints.tables[1].min_column_width",
                                   "constraints.sharding_types", "topology"));
}

TEST_F(FindConflictTest, WhatOnlyTryingShows) {
  // Three uncut tables of 64 kB on ranks of 100 kB: two would have to share one.
  Rule({0, 1, 2}).ranks = {0, 1};
  Rule({0, 1, 2}).sharding_types = {kTableWise};
  for (int r : {0, 1})
    request_.topology.devices[static_cast<std::size_t>(r)].memory_bytes = 120'000;
  EXPECT_THAT(Paths(), ElementsAre("constraints.tables[0].ranks",
                                   "constraints.tables[1].sharding_types", "topology"));
  request_.topology.devices[0].memory_bytes = 128'000;
  EXPECT_THAT(Paths(), IsEmpty());
}

TEST_F(FindConflictTest, MoreLargeTablesThanRanks) {
  for (int t = 0; t < 36; ++t) {
    request_.tables.push_back(request_.tables[0]);
    request_.tables.back().name = std::to_string(t);
  }
  request_.topology.devices.assign(39, {0, 120'000});
  EXPECT_THAT(Paths(), IsEmpty());
  constraints_.sharding_types = {kTableWise};
  EXPECT_THAT(Paths(), ElementsAre("constraints.sharding_types", "topology"));
  request_.topology.devices[0].memory_bytes = 128'000;
  EXPECT_THAT(Paths(), IsEmpty());
}

TEST_F(FindConflictTest, TablesThatMayOnlyBeInHostMemory) {
  request_.topology.host_memory_bytes = {100'000, 27'999};
  Rule({1, 2}).compute_kernels = {ComputeKernel::kFusedUvm};
  const auto conflict = FindConflict(request_, types_);
  ASSERT_TRUE(conflict.has_value());
  EXPECT_THAT(conflict->reason,
              StartsWith("tables that may not be in device memory take 125.00 KiB at the least, "
                         "and there is 125.00 KiB of host memory for them"));
  EXPECT_THAT(Paths(), ElementsAre("constraints.tables[0].compute_kernels", "topology"));
  ++request_.topology.host_memory_bytes[1];
  EXPECT_THAT(Paths(), IsEmpty());
}

TEST_F(FindConflictTest, TheMigrationBudget) {
  request_.migration.emplace();
  request_.migration->previous.tables = {
      {"a", "", kTableWise, ComputeKernel::kFused, {{0, 1000, 0, 16, 0}}}};
  request_.migration->budget_bytes = 63'999;
  EXPECT_THAT(Paths(), IsEmpty());
  Rule({0}).forbidden_ranks = {0};
  EXPECT_THAT(Paths(),
              ElementsAre("constraints.tables[0].forbidden_ranks", "migration.budget_bytes"));
  request_.migration->budget_bytes = 64'000;
  EXPECT_THAT(Paths(), IsEmpty());
}

TEST_F(FindConflictTest, TheStatusListsTheDemands) {
  Rule({0}).ranks = {3};
  Rule({0, 1}).hosts = {0};
  const auto conflict = FindConflict(request_, types_);
  ASSERT_TRUE(conflict.has_value());
  const Status status = ToStatus({*conflict});
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("constraints.tables[0].ranks (only ranks 3 for 'a')"),
                             HasSubstr("constraints.tables[1].hosts (only hosts 0 for 'a', 'b')"),
                             StartsWith("no plan can exist: 'a' may be on no rank"))));
  EXPECT_THAT(Violations::FromStatus(status),
              ElementsAre(::testing::Field(&Violation::description, HasSubstr("and the other")),
                          ::testing::Field(&Violation::description, HasSubstr("and the other"))));
}

TEST_F(FindConflictTest, ContradictionsWithoutDemandsInCommonAreListedTogether) {
  request_.tables[3].num_embeddings = 10'000;
  Rule({0}).ranks = {3};
  Rule({0}).hosts = {0};
  constraints_.separate.push_back({{1, 2, 3}, GroupLevel::kHost});
  const auto conflicts = FindConflicts(request_, types_);
  ASSERT_THAT(conflicts, SizeIs(3));
  const Status status = ToStatus(conflicts);
  EXPECT_EQ(ReasonOf(status), FailureReason::kOutOfMemory) << "whatever the constraints";
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith("no plan can exist: (1) 'a' may be on no rank; (2) tables take "),
                    HasSubstr(". (1) No plan keeps all of these: constraints.tables[0].ranks"),
                    HasSubstr(". (2) No plan keeps this: topology")));
  std::vector<std::string> paths;
  for (const Violation& violation : Violations::FromStatus(status))
    paths.push_back(violation.field);
  EXPECT_THAT(paths, ElementsAre("constraints.tables[0].ranks", "constraints.tables[1].hosts",
                                 "topology", "constraints.separate[0]"));
}

// A kernel that only a rule allows stays allowed where the proof leaves the rule out.
TEST_F(FindConflictTest, KernelsThatARuleListsAreNoShortageOfMemory) {
  request_.memory.rule = MemoryRule::kFull;
  request_.optimizer = Optimizer::kRowwiseAdagrad;
  request_.global_batch_size = 2;
  request_.tables.resize(1);
  request_.tables[0].num_embeddings = 1'000'000;
  request_.tables[0].embedding_dim = 4;
  request_.topology.devices.assign(2, {0, 1'000'000});
  request_.topology.host_memory_bytes = {std::int64_t{1} << 40};
  Rule({0}).compute_kernels = {ComputeKernel::kOffload};
  constraints_.tables[0].sharding_types = {kDataParallel};
  const auto conflicts = FindConflicts(request_, types_);
  ASSERT_THAT(conflicts, SizeIs(1));
  EXPECT_THAT(Paths(), UnorderedElementsAre("constraints.tables[0].sharding_types", "topology"));
}

TEST_F(FindConflictTest, TypesOfTheCostModelAreNoShortageOfMemory) {
  for (Table& table : request_.tables) table.embedding_dim = 4;
  request_.tables[0].num_embeddings = 10'000;  // 160 kB, which columns of 4 do not cut
  EXPECT_FALSE(FindConflict(request_, TypeSet::All()).has_value());
  const auto conflict = FindConflict(request_, {kTableWise, kColumnWise});
  ASSERT_TRUE(conflict.has_value());
  const Status status = ToStatus({*conflict});
  EXPECT_EQ(ReasonOf(status), FailureReason::kConstraintsConflict);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("a shard takes 156.25 KiB, and the roomiest has 97.66 KiB"),
                    HasSubstr("cost_model (only table_wise, column_wise, unless "
                              "constraints.sharding_types names others)")));
}

TEST_F(FindConflictTest, MemoryAloneSaysWhatIsShortAndOfWhichTables) {
  for (Device& device : request_.topology.devices) device.memory_bytes = 60'000;
  const auto conflict = FindConflict(request_, TypeSet::All());
  ASSERT_TRUE(conflict.has_value());
  EXPECT_EQ(ReasonOf(ToStatus({*conflict})), FailureReason::kOutOfMemory);
  EXPECT_EQ(conflict->reason,
            "tables take 250.00 KiB at the least on ranks that have 234.38 KiB for them: 15.62 KiB "
            "short. The largest: 'a' (62.50 KiB), 'b' (62.50 KiB), 'c' (62.50 KiB) and 1 more");
}

TEST_F(FindConflictTest, SaysWhyNoTypeIsLeft) {
  const auto reason = [&] {
    const auto conflict = FindConflict(request_, TypeSet::All());
    return conflict.has_value() ? conflict->reason : "none";
  };
  Rule({0}).sharding_types = {kTableRowWise};
  request_.tables[0].kind = TableKind::kEmbedding;
  EXPECT_THAT(reason(), HasSubstr("kind embedding has table_wise, column_wise and row_wise alone"));
  constraints_.tables.clear();
  request_.tables[0].kind = TableKind::kEmbeddingBag;
  Rule({0}).sharding_types = {kRowWise};
  Rule({0}).row_multiple = 400;
  EXPECT_THAT(reason(), HasSubstr("row_wise cannot cut 2 buckets of 400 rows over 4 ranks"));
  constraints_.tables.clear();
  Rule({0}).compute_kernels = {ComputeKernel::kFusedUvm};
  EXPECT_EQ(reason(),
            "'a' may be in no memory: its kernels are for host memory or SSDs, and hosts have none "
            "for it");
  request_.topology.host_memory_bytes = {1 << 30, 1 << 30};
  Rule({0}).compute_kernels = {ComputeKernel::kFused};
  EXPECT_EQ(reason(), "'a' may be in no memory: no kernel and load factor is left");
}

TEST_F(FindConflictTest, RanksMayLackEvenTheirReserve) {
  request_.memory.rule = MemoryRule::kWeightsOnly;
  for (Device& device : request_.topology.devices) device.memory_bytes = 1000;
  request_.memory.reserve_bytes = 2000;
  request_.topology.host_memory_bytes = {1 << 30, 1 << 30};
  EXPECT_FALSE(FindConflict(request_, types_).has_value()) << "all may be in host memory";
}

TEST_F(FindConflictTest, OneDemandAloneSpeaksOfNoOthers) {
  for (Device& device : request_.topology.devices) device.memory_bytes = 1;
  const auto conflict = FindConflict(request_, types_);
  ASSERT_TRUE(conflict.has_value());
  const Status status = ToStatus({*conflict});
  EXPECT_THAT(Message(status), HasSubstr("No plan keeps this: topology"));
  EXPECT_THAT(Violations::FromStatus(status),
              ElementsAre(::testing::Field(&Violation::description, Not(HasSubstr("other")))));
}

// Against every plan there is: what is proven impossible is, and of what is named, nothing is
// superfluous to the proof. Nearly all that is impossible is proven, since the instances are tiny.
TEST(FindConflictPropertyTest, ConflictsAreRealAndMinimal) {
  Random random(23);
  RandomRequestShape shape;
  shape.max_tables = 3;
  shape.max_ranks = 3;
  shape.dims = {3, 4, 6, 8};
  shape.ranks_per_host = {1, 2};
  shape.torchrec_memory = true;
  int conflicts = 0, second = 0;
  int missed = 0;
  int feasible = 0;
  std::set<std::string> kinds;
  for (int i = 0; i < testing::Trials(200); ++i) {
    PlanRequest request = RandomPlanRequest(random, shape);
    AddRandomConstraints(random, request, 6);
    if (i % 3 == 0) AddRandomMigration(random, request);
    if (i % 6 == 3) request.migration->only_types = {kTableWise, kColumnWise};
    if (i % 4 == 1) request.pipeline_type = PipelineType::kTrainSparseDist;
    const TypeSet types = i % 2 == 0 ? TypeSet::All() : TypeSet{kTableWise, kColumnWise};
    const bool possible = AnyPlanIsLegal(request, types);
    const std::vector<Conflict> found = FindConflicts(request, types);
    feasible += possible ? 1 : 0;
    missed += !possible && found.empty() ? 1 : 0;
    ASSERT_FALSE(possible && !found.empty()) << "instance " << i << ": " << ToStatus(found);
    conflicts += found.empty() ? 0 : 1;
    second += found.size() > 1 ? 1 : 0;

    const Demands demands(request, types);
    std::set<std::string> paths;
    for (const Conflict& conflict : found) {
      std::vector<std::size_t> named;
      for (std::size_t f = 0; f < demands.size(); ++f) {
        for (const ConflictingDemand& demand : conflict.demands) {
          if (demands.Path(f) == demand.path) named.push_back(f);
        }
        if (named.empty() || named.back() != f) continue;
        kinds.insert(demands.Path(f));
        EXPECT_TRUE(paths.insert(demands.Path(f)).second) << "named by two";
      }
      ASSERT_EQ(named.size(), conflict.demands.size());
      EXPECT_TRUE(ProveInfeasible(demands.With(named)).has_value());
      EXPECT_FALSE(AnyPlanIsLegal(demands.With(named), TypeSet::All()));
      for (std::size_t out = 0; out < named.size(); ++out) {
        std::vector<std::size_t> rest = named;
        rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(out));
        // A plan exists without this demand, as far as anyone can show.
        EXPECT_FALSE(ProveInfeasible(demands.With(rest)).has_value()) << demands.Path(named[out]);
      }
    }
  }
  EXPECT_GE(conflicts, testing::FewestCases(61));
  EXPECT_GE(second, testing::FewestCases(10));
  EXPECT_GE(feasible, testing::FewestCases(51));
  EXPECT_EQ(missed, 0);
  EXPECT_GE(std::ssize(kinds), testing::FewestCases(16));
}

// Tables whole, each in a memory of its own choice, whose kernel a rule lists, mostly beside
// another: memories that hosts share, and devices of every other request, have to the byte what
// that plan takes.
TEST(FindConflictPropertyTest, MemoriesThatAPlanFillsAreEnough) {
  Random random(37);
  constexpr std::array kKernels = {ComputeKernel::kFused,          ComputeKernel::kFusedUvm,
                                   ComputeKernel::kOffload,        ComputeKernel::kKeyValue,
                                   ComputeKernel::kDynamicHybrid,  ComputeKernel::kDynamicCaching,
                                   ComputeKernel::kFusedUvmCaching};
  RandomRequestShape shape;
  shape.max_tables = 4;
  shape.max_slack = 1000;
  shape.torchrec_memory = true;
  int short_by_a_byte = 0;
  for (int i = 0; i < testing::Trials(400); ++i) {
    PlanRequest request = RandomPlanRequest(random, shape);
    Topology& topology = request.topology;
    request.memory.reserve_fraction = 0;
    request.memory.reserve_bytes = 0;
    const std::int64_t free = i % 2 == 0 ? 1 : std::int64_t{1} << 40;
    for (Device& device : topology.devices) device.memory_bytes = free;
    topology.host_memory_bytes.assign(topology.hosts().size(), 0);
    topology.ssd_bytes.assign(topology.hosts().size(), 0);
    Plan plan;
    plan.world_size = topology.num_ranks();
    plan.local_world_size = topology.ranks_per_host();
    for (Table& table : request.tables) {
      table.weight_dtype = DataType::kFp32;
      TableRule& rule = request.constraints.tables.emplace_back();
      rule.tables = {static_cast<int>(&table - request.tables.data())};
      TablePlan& placed = plan.tables.emplace_back();
      placed.name = table.name;
      placed.module = table.module;
      placed.compute_kernel = kKernels[random.Below(kKernels.size())];
      if (HasCache(placed.compute_kernel)) placed.cache_load_factor = 0.1;
      rule.compute_kernels = {placed.compute_kernel};
      if (HasCache(placed.compute_kernel)) rule.cache_load_factor = 0.1;
      const ComputeKernel other = kKernels[random.Below(kKernels.size())];
      if (other != placed.compute_kernel) rule.compute_kernels.push_back(other);
      const int rank = static_cast<int>(random.Below(topology.devices.size()));
      placed.shards = {{.rows = table.num_embeddings, .cols = table.embedding_dim, .rank = rank}};
      const TierBytes bytes =
          ShardMemory(request, table, LayoutIn(ResidencyOf(placed), kTableWise, 1),
                      table.num_embeddings, table.embedding_dim)
              .by_tier();
      const int host = At(topology.devices, rank).host;
      At(topology.devices, rank).memory_bytes += bytes[MemoryTier::kDevice];
      At(topology.host_memory_bytes, host) += bytes[MemoryTier::kHost];
      At(topology.ssd_bytes, host) += bytes[MemoryTier::kSsd];
    }
    ASSERT_THAT(CheckPlan(request, plan), IsEmpty()) << "instance " << i;
    const auto conflict = FindConflict(request, TypeSet::All());
    ASSERT_FALSE(conflict.has_value()) << "instance " << i << ": " << ToStatus({*conflict});
    for (std::vector<std::int64_t>* of : {&topology.host_memory_bytes, &topology.ssd_bytes}) {
      const auto some = std::ranges::find_if(*of, [](std::int64_t bytes) { return bytes > 0; });
      if (some == of->end()) continue;
      --*some;
      short_by_a_byte += FindConflict(request, TypeSet::All()).has_value() ? 1 : 0;
      ++*some;
    }
  }
  EXPECT_GE(short_by_a_byte, testing::FewestCases(100));
}

}  // namespace
}  // namespace neuroshard
