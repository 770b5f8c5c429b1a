#include "client/cli/plan_output.h"

#include <absl/strings/str_split.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/codec/message_text.h"
#include "common/domain/shard_layout.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using testing::StatusIs;

template <typename M>
M FromYaml(const std::string& text) {
  M message;
  EXPECT_THAT(ParseMessageText(text, TextFormat::kYaml, &message), IsOk());
  return message;
}

// Two hosts with two devices each; one table whole, one in columns.
v1::Plan SomePlan() {
  return FromYaml<v1::Plan>(R"(
world_size: 4
local_world_size: 2
tables:
- {name: user, module: sparse.ebc, sharding_type: table_wise, compute_kernel: fused,
   shards: [{rows: 10, cols: 8, rank: 3}]}
- {name: item, module: sparse.ebc, sharding_type: column_wise, compute_kernel: fused,
   shards: [{rows: 20, cols: 32, rank: 0}, {rows: 20, col_offset: 32, cols: 16, rank: 1},
            {rows: 20, col_offset: 48, cols: 16, rank: 0}]}
)");
}

TEST(PlanAsTorchRecTest, Golden) {
  const auto topology =
      FromYaml<v1::Topology>("hosts: [{count: 2, num_devices: 2, memory_bytes: 1000}]");
  EXPECT_EQ(nlohmann::json::parse(*PlanAsTorchRec(SomePlan(), topology, "cuda")),
            nlohmann::json::parse(R"({
    "plan": {"sparse.ebc": {
      "user": {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [3],
        "shards": [{"shard_offsets": [0, 0], "shard_sizes": [10, 8], "placement": "rank:3/cuda:1"}]},
      "item": {"sharding_type": "column_wise", "compute_kernel": "fused", "ranks": [0, 1, 0],
        "shards": [{"shard_offsets": [0, 0], "shard_sizes": [20, 32], "placement": "rank:0/cuda:0"},
                   {"shard_offsets": [0, 32], "shard_sizes": [20, 16], "placement": "rank:1/cuda:1"},
                   {"shard_offsets": [0, 48], "shard_sizes": [20, 16], "placement": "rank:0/cuda:0"}]}}}})"));
}

TEST(PlanAsTableTest, ShowsHowSureTheModelIsWhereItSaysSo) {
  v1::ShardPlanResponse response;
  v1::PlanCost& cost = *response.mutable_cost();
  cost.set_embedding_cost_ms(2.5);
  cost.add_ranks()->set_total_ms(2.5);
  cost.add_ranks()->set_rank(1);
  EXPECT_THAT(PlanAsTable(response), AllOf(HasSubstr("cost 2.500 ms, 0"), Not(HasSubstr("%:")),
                                           HasSubstr("total_ms  memory")));

  cost.set_interval_coverage(0.9);
  cost.mutable_interval()->set_low_ms(2);
  cost.mutable_interval()->set_high_ms(3.25);
  *cost.mutable_ranks(0)->mutable_total_interval() = cost.interval();
  EXPECT_THAT(PlanAsTable(response),
              AllOf(HasSubstr("cost 2.500 ms, 90% within 2.000..3.250, 0"),
                    HasSubstr("total_ms    90% within  memory"), HasSubstr("2.500  2.000..3.250")));
}

TEST(PlanAsTableTest, BeginsWithWhatItsPricesRestOn) {
  v1::ShardPlanResponse response;
  EXPECT_THAT(PlanAsTable(response), Not(HasSubstr("measured with")));
  v1::MeasuredWith& with = *response.mutable_cost()->mutable_measured_with();
  with.set_backend("neuroshard-cpu");
  EXPECT_THAT(PlanAsTable(response), HasSubstr("measured with neuroshard-cpu kernels\n"));
  with.set_device("AMD EPYC");
  with.set_collective_backend("neuroshard-tcp");
  EXPECT_THAT(
      PlanAsTable(response),
      StartsWith(
          "measured with neuroshard-cpu kernels and neuroshard-tcp collectives on AMD EPYC\n"));
  response.mutable_price_basis()->set_text("prices rest on sand");
  EXPECT_THAT(PlanAsTable(response),
              AllOf(StartsWith("prices rest on sand\nrank"), Not(HasSubstr("measured with"))));
}

TEST(PlanAsTableTest, TheFormulasCostStandsBesideThatOfAGpusModel) {
  v1::ShardPlanResponse response;
  response.mutable_cost()->mutable_measured_with()->set_backend("neuroshard-cuda");
  EXPECT_THAT(PlanAsTable(response), Not(HasSubstr("formulas")));
  response.set_analytic_cost_ms(0.25);
  EXPECT_THAT(PlanAsTable(response), HasSubstr("TorchRec's formulas (analytic) 0.250 ms\n"));
  response.mutable_cost()->mutable_measured_with()->set_backend("neuroshard-cpu");
  EXPECT_THAT(PlanAsTable(response), Not(HasSubstr("formulas")));
}

TEST(PlanAsTorchRecTest, CpuPlacementsHaveNoIndexAndTablesKeepTheirOrder) {
  const auto topology = FromYaml<v1::Topology>("hosts: [{num_devices: 4, memory_bytes: 1000}]");
  const std::string text = *PlanAsTorchRec(SomePlan(), topology, "cpu");
  EXPECT_THAT(text, HasSubstr("\"rank:3/cpu\""));
  EXPECT_LT(text.find("user"), text.find("item"));
}

TEST(PlanAsTorchRecTest, HostsOfDifferentSizeNumberTheirOwnDevices) {
  const auto topology = FromYaml<v1::Topology>(
      "hosts: [{num_devices: 3, memory_bytes: 9}, {num_devices: 1, memory_bytes: 9}]");
  EXPECT_THAT(*PlanAsTorchRec(SomePlan(), topology, "cuda"), HasSubstr("\"rank:3/cuda:0\""));
}

// Every type of TorchRec on two hosts of two devices, as its sharding_plan.py lays them out.
TEST(PlanAsTorchRecTest, EveryTypeIsWrittenAsTorchRecReadsIt) {
  const auto plan = FromYaml<v1::Plan>(R"(
world_size: 4
local_world_size: 2
tables:
- {name: rw, sharding_type: row_wise, compute_kernel: fused,
   shards: [{rows: 2, cols: 8, rank: 0}, {row_offset: 2, rows: 2, cols: 8, rank: 1},
            {row_offset: 4, rows: 1, cols: 8, rank: 2}, {row_offset: 5, rows: 0, cols: 8, rank: 3}]}
- {name: twrw, sharding_type: table_row_wise, compute_kernel: fused,
   shards: [{rows: 3, cols: 8, rank: 2}, {row_offset: 3, rows: 2, cols: 8, rank: 3}]}
- {name: twcw, sharding_type: table_column_wise, compute_kernel: fused,
   shards: [{rows: 5, cols: 4, rank: 3}, {rows: 5, col_offset: 4, cols: 4, rank: 2}]}
- {name: grid, sharding_type: grid_shard, compute_kernel: fused,
   shards: [{rows: 3, cols: 4, rank: 0}, {row_offset: 3, rows: 2, cols: 4, rank: 1},
            {rows: 3, col_offset: 4, cols: 4, rank: 2}, {row_offset: 3, rows: 2, col_offset: 4, cols: 4, rank: 3}]}
- {name: dp, sharding_type: data_parallel, compute_kernel: dense,
   shards: [{rows: 5, cols: 8, rank: 0}, {rows: 5, cols: 8, rank: 1}, {rows: 5, cols: 8, rank: 2},
            {rows: 5, cols: 8, rank: 3}]}
)");
  const auto topology =
      FromYaml<v1::Topology>("hosts: [{count: 2, num_devices: 2, memory_bytes: 1000}]");
  const auto text = PlanAsTorchRec(plan, topology, "cuda");
  ASSERT_THAT(text, IsOk());
  EXPECT_EQ(nlohmann::json::parse(*text), nlohmann::json::parse(R"({"plan": {"": {
    "rw": {"sharding_type": "row_wise", "compute_kernel": "fused", "ranks": [0, 1, 2, 3], "shards": [
      {"shard_offsets": [0, 0], "shard_sizes": [2, 8], "placement": "rank:0/cuda:0"},
      {"shard_offsets": [2, 0], "shard_sizes": [2, 8], "placement": "rank:1/cuda:1"},
      {"shard_offsets": [4, 0], "shard_sizes": [1, 8], "placement": "rank:2/cuda:0"},
      {"shard_offsets": [5, 0], "shard_sizes": [0, 8], "placement": "rank:3/cuda:1"}]},
    "twrw": {"sharding_type": "table_row_wise", "compute_kernel": "fused", "ranks": [2, 3], "shards": [
      {"shard_offsets": [0, 0], "shard_sizes": [3, 8], "placement": "rank:2/cuda:0"},
      {"shard_offsets": [3, 0], "shard_sizes": [2, 8], "placement": "rank:3/cuda:1"}]},
    "twcw": {"sharding_type": "table_column_wise", "compute_kernel": "fused", "ranks": [3, 2], "shards": [
      {"shard_offsets": [0, 0], "shard_sizes": [5, 4], "placement": "rank:3/cuda:1"},
      {"shard_offsets": [0, 4], "shard_sizes": [5, 4], "placement": "rank:2/cuda:0"}]},
    "grid": {"sharding_type": "grid_shard", "compute_kernel": "fused", "ranks": [0, 1, 2, 3], "shards": [
      {"shard_offsets": [0, 0], "shard_sizes": [3, 4], "placement": "rank:0/cuda:0"},
      {"shard_offsets": [3, 0], "shard_sizes": [2, 4], "placement": "rank:1/cuda:1"},
      {"shard_offsets": [0, 4], "shard_sizes": [3, 4], "placement": "rank:2/cuda:0"},
      {"shard_offsets": [3, 4], "shard_sizes": [2, 4], "placement": "rank:3/cuda:1"}]},
    "dp": {"sharding_type": "data_parallel", "compute_kernel": "dense", "ranks": [0, 1, 2, 3], "shards": null}
    }}})"));
}

TEST(PlanAsTorchRecTest, WhatTorchRecDoesNotHaveIsRefused) {
  const auto plan = FromYaml<v1::Plan>(R"(
world_size: 4
tables: [{name: thirds, sharding_type: row_wise_subset, compute_kernel: fused,
          shards: [{rows: 3, cols: 4}, {row_offset: 3, rows: 2, cols: 4, rank: 2}]}]
)");
  EXPECT_THAT(PlanAsTorchRec(plan, v1::Topology(), "cuda"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("thirds"), HasSubstr("row_wise_subset"))));
  const auto offload = FromYaml<v1::Plan>(R"(
world_size: 1
tables: [{name: far, sharding_type: table_wise, compute_kernel: offload, shards: [{rows: 3, cols: 4}]}]
)");
  EXPECT_THAT(PlanAsTorchRec(offload, v1::Topology(), "cuda"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("table far is offload, a kernel that TorchRec does not have")));
}

TEST(PlanAsTorchRecTest, ShardsThatItsKernelsDoNotTakeAreRefusedByName) {
  const auto refusal = [](const std::string& shards, const std::string& type,
                          const std::string& kernel, const std::string& device) {
    const auto plan =
        FromYaml<v1::Plan>("world_size: 1\ntables: [{name: odd, sharding_type: " + type +
                           ", compute_kernel: " + kernel + ", shards: [" + shards + "]}]");
    const auto topology = FromYaml<v1::Topology>("hosts: [{num_devices: 1, memory_bytes: 9}]");
    return PlanAsTorchRec(plan, topology, device);
  };
  const auto is_refused = [](const std::string& why) {
    return StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("table odd has " + why));
  };
  const std::string five = "{rows: 3, cols: 5}";
  const std::string wide = "{rows: 3, cols: 2052}";
  EXPECT_THAT(refusal(five, "table_wise", "fused", "cuda"),
              is_refused("5 columns, and FBGEMM on CUDA devices takes multiples of 4: pad its "
                         "embedding_dim to 8"));
  EXPECT_THAT(refusal(five, "data_parallel", "dense", "cuda"), is_refused("5 columns"));
  EXPECT_THAT(refusal("{rows: 3, cols: 4}, {rows: 3, col_offset: 4, cols: 1}", "column_wise",
                      "fused", "cpu"),
              is_refused("5 columns, and FBGEMM on CPUs"));
  EXPECT_THAT(refusal(five, "data_parallel", "dense", "cpu"), IsOk());
  EXPECT_THAT(refusal(wide, "table_wise", "fused", "cuda"),
              is_refused("a shard of 2052 columns, and FBGEMM on CUDA devices takes at most 2048"));
  EXPECT_THAT(refusal(wide, "table_wise", "fused", "cpu"), IsOk());
  EXPECT_THAT(refusal("{rows: 3, cols: 2048}", "table_wise", "fused", "cuda"), IsOk());
}

TEST(PlanOutputTest, RowsInHostMemoryAreWrittenForTorchRecAlone) {
  const auto plan = FromYaml<v1::Plan>(R"(
world_size: 1
local_world_size: 1
tables:
- {name: cold, sharding_type: table_wise, compute_kernel: fused_uvm_caching, cache_load_factor: 0.375,
   shards: [{rows: 5, cols: 4}]}
- {name: colder, sharding_type: table_wise, compute_kernel: fused_uvm, shards: [{rows: 5, cols: 4}]}
- {name: coldest, sharding_type: table_wise, compute_kernel: key_value, cache_load_factor: 0.125, shards: [{rows: 5, cols: 4}]}
)");
  const auto text =
      PlanAsTorchRec(plan, FromYaml<v1::Topology>("hosts: [{num_devices: 1}]"), "cuda");
  ASSERT_THAT(text, IsOk());
  const auto written = nlohmann::json::parse(*text)["plan"][""];
  EXPECT_EQ(written["cold"]["compute_kernel"], "fused_uvm_caching");
  EXPECT_EQ(written["cold"]["cache_load_factor"], 0.375);
  EXPECT_EQ(written["colder"]["compute_kernel"], "fused_uvm");
  EXPECT_FALSE(written["colder"].contains("cache_load_factor"));
  EXPECT_EQ(written["coldest"]["compute_kernel"], "key_value");
  EXPECT_EQ(written["coldest"]["cache_load_factor"], 0.125);

  const std::vector<StatusOr<std::string>> others = {
      PlanAsNeuroShard(plan), PlanAsHugeCtr(plan, {}), PlanAsDistributedEmbeddings(plan, {})};
  for (const StatusOr<std::string>& other : others) {
    EXPECT_THAT(other,
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("table cold is fused_uvm_caching: its rows are in host")));
  }
  for (const StatusOr<std::string>& other : others) {
    EXPECT_THAT(std::string(other.status().message()),
                HasSubstr("table coldest is key_value: its rows are on SSD"));
  }
}

// Replays a plan in NeuroShard's format: the multiset of (table, dim, device).
std::vector<std::string> Replay(const nlohmann::json& plan, std::vector<std::int64_t> dims) {
  std::vector<std::size_t> origin;
  for (std::size_t i = 0; i < dims.size(); ++i) origin.push_back(i);
  for (const std::size_t index : plan["column_splits"]) {
    dims[index] /= 2;
    dims.push_back(dims[index]);
    origin.push_back(origin[index]);
  }
  std::vector<std::string> placed;
  EXPECT_EQ(plan["assignment"].size(), dims.size());
  for (std::size_t i = 0; i < dims.size(); ++i) {
    placed.push_back(fmt::format("{} {} on {}", plan["tables"][origin[i]].get<std::string>(),
                                 dims[i], plan["assignment"][i].get<int>()));
  }
  return placed;
}

// Each module apart: TorchRec divides by module.
TEST(TorchRecWarningsTest, RowsOfAMeanPooledTableCutBesideOtherTables) {
  const auto warnings = [](const std::string& types) {
    v1::Plan plan;
    v1::ShardPlanRequest request;
    const std::vector<std::string> words = absl::StrSplit(types, ' ');
    for (std::size_t t = 0; t < words.size(); ++t) {
      const std::vector<std::string> parts = absl::StrSplit(words[t], ':');  // module:mode:type
      v1::TablePlan& planned = *plan.add_tables();
      planned.set_module(parts[0]);
      planned.set_name(fmt::format("t{}", t));
      planned.set_sharding_type(parts[2]);
      v1::Table& table = *request.add_tables();
      table.set_module(parts[0]);
      table.set_name(planned.name());
      table.set_pooling_mode(parts[1]);
    }
    return TorchRecWarnings(plan, request.tables(), "cuda");
  };
  for (const char* type : {"row_wise", "table_row_wise", "grid_shard"}) {
    EXPECT_THAT(warnings(fmt::format("a:sum:table_wise a:mean:{}", type)),
                ElementsAre(AllOf(HasSubstr("module 'a': its table t1"), HasSubstr(type),
                                  HasSubstr("beside t0, which is table_wise"))));
  }
  EXPECT_THAT(warnings("a:mean:row_wise a:mean:column_wise b:mean:grid_shard b:sum:data_parallel"),
              SizeIs(2));
  // Nothing is mixed; nothing is a mean; the other table is in another module.
  EXPECT_THAT(warnings("a:mean:row_wise a:sum:table_row_wise"), IsEmpty());
  EXPECT_THAT(warnings("a:sum:row_wise a:mean:table_wise"), IsEmpty());
  EXPECT_THAT(warnings("a:mean:row_wise b:sum:table_wise"), IsEmpty());
}

TEST(TorchRecWarningsTest, BlocksThatTorchRecIsNotToldAreNamed) {
  const auto warnings = [](const std::vector<std::int64_t>& rows, const std::string& type) {
    v1::Plan plan;
    v1::TablePlan& planned = *plan.add_tables();
    planned.set_module("m");
    planned.set_name("t");
    planned.set_sharding_type(type);
    for (const std::int64_t each : rows) planned.add_shards()->set_rows(each);
    return TorchRecWarnings(plan, {}, "cuda");
  };
  EXPECT_THAT(warnings({4, 2, 2, 2}, "row_wise"),
              ElementsAre(AllOf(HasSubstr("m.t"), HasSubstr("total_num_buckets"),
                                HasSubstr("neuroshard.torchrec.RowPositions"))));
  EXPECT_THAT(warnings({2, 2, 5, 5}, "row_wise"), SizeIs(1));
  EXPECT_THAT(warnings({3, 3, 3, 1}, "row_wise"), IsEmpty());
  EXPECT_THAT(warnings({2, 2, 1, 0}, "row_wise"), IsEmpty());
  EXPECT_THAT(warnings({4, 2, 2, 2}, "row_wise_subset"), IsEmpty());
}

TEST(TorchRecWarningsTest, KernelsThatCpusDoNotHaveAreNamed) {
  v1::Plan plan;
  for (const char* kernel : {"fused", "key_value", "fused_uvm", "key_value"}) {
    plan.add_tables()->set_compute_kernel(kernel);
  }
  EXPECT_THAT(TorchRecWarnings(plan, {}, "cuda"), IsEmpty());
  EXPECT_THAT(TorchRecWarnings(plan, {}, "cpu"), ElementsAre(HasSubstr("fused_uvm, key_value on")));
}

TEST(PlanAsNeuroShardTest, ReplayingTheSplitsGivesThePlan) {
  const auto text = PlanAsNeuroShard(SomePlan());
  ASSERT_THAT(text, IsOk());
  const auto plan = nlohmann::json::parse(*text);
  EXPECT_EQ(plan["format"], "neuroshard-plan/1");
  EXPECT_EQ(plan["num_devices"], 4);
  EXPECT_THAT(Replay(plan, {8, 64}),
              ::testing::UnorderedElementsAre("user 8 on 3", "item 32 on 0", "item 16 on 1",
                                              "item 16 on 0"));
}

TEST(PlanAsNeuroShardTest, WidthsInAnyOrderAreHalves) {
  const auto plan = FromYaml<v1::Plan>(R"(
world_size: 2
tables:
- {name: t, sharding_type: table_column_wise, shards: [{rows: 1, cols: 8, rank: 0}, {rows: 1, col_offset: 8, cols: 16, rank: 1}, {rows: 1, col_offset: 24, cols: 4, rank: 0},
                     {rows: 1, col_offset: 28, cols: 4, rank: 1}]}
)");
  const auto text = PlanAsNeuroShard(plan);
  ASSERT_THAT(text, IsOk());
  EXPECT_THAT(Replay(nlohmann::json::parse(*text), {32}),
              ::testing::UnorderedElementsAre("t 16 on 1", "t 8 on 0", "t 4 on 0", "t 4 on 1"));
}

TEST(PlanAsNeuroShardTest, WhatIsNotMadeByHalvingIsRefused) {
  const auto plan = FromYaml<v1::Plan>(R"(
world_size: 2
tables: [{name: thirds, sharding_type: column_wise,
          shards: [{rows: 1, cols: 4}, {rows: 1, col_offset: 4, cols: 4}, {rows: 1, col_offset: 8, cols: 4}]},
         {name: rows, sharding_type: row_wise, shards: [{rows: 1, cols: 4}]},
         {name: none, sharding_type: table_wise}]
)");
  EXPECT_THAT(
      PlanAsNeuroShard(plan),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("table thirds has shards that are not made by halving"),
                     HasSubstr("table rows is row_wise"), HasSubstr("table none has no shards"))));
}

TEST(PlanAsNeuroShardTest, OnlyColumnsCanBeCut) {
  for (const char* type :
       {"row_wise", "table_row_wise", "grid_shard", "data_parallel", "row_wise_subset"}) {
    v1::Plan plan = SomePlan();
    plan.mutable_tables(1)->set_sharding_type(type);
    EXPECT_THAT(PlanAsNeuroShard(plan), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                 AllOf(HasSubstr("item"), HasSubstr(type))));
  }
}

TEST(PlanAsTableTest, Golden) {
  const auto response = FromYaml<v1::ShardPlanResponse>(R"(
plan:
  world_size: 2
  tables:
  - {name: a, sharding_type: table_wise, shards: [{}]}
  - {name: b, sharding_type: row_wise, shards: [{}, {}]}
cost:
  embedding_cost_ms: 12.5
  exchanges: [{module: ebc, sharding_type: row_wise, time_ms: 0.25}, {sharding_type: table_wise, time_ms: 0.125}]
  ranks:
  - {rank: 0, compute_ms: 10, forward_comm_ms: 1.25, backward_comm_ms: 1.25, total_ms: 12.5, dim_sum: 64,
     memory: {total_bytes: 536870912, capacity_bytes: 1073741824}}
  - {rank: 1, compute_ms: 9, forward_comm_ms: 1, backward_comm_ms: 1, total_ms: 11, dim_sum: 128,
     memory: {total_bytes: 1610612736, capacity_bytes: 1073741824}}
search: {strategy: neuroshard, search_ms: 3.21, splits: 2}
cost_model: {name: cpu, version: 3}
global_batch_size: 4096
warnings: [pooling assumed]
lower_bound: {cost_ms: 12, kind: certified, scope: all plans, gap_percent: 4.17}
migration: {moved_bytes: 3072, tables: [{table: a, bytes: 1024}, {table: b, bytes: 2048}]}
trades:
- {measure: max_memory, points: [{cost_ms: 12, value: 1.75}, {cost_ms: 12.25, value: 1.625}, {cost_ms: 12.5, value: 1.5}]}
- {measure: moved_bytes, points: [{cost_ms: 12.5, value: 4096}, {cost_ms: 12.5, value: 3072}, {cost_ms: 12.5, value: 3072}]}
- {measure: cut_tables, points: [{cost_ms: 12.5, value: 2}, {cost_ms: 12.5, value: 1}, {cost_ms: 12.5, value: 1}]}
- {measure: max_stash, points: [{cost_ms: 12.5, value: 2048}, {cost_ms: 12.5, value: 1024}, {cost_ms: 12.5, value: 1024}]}
stash: {tables: [a, b], max_stashed_bytes: 1024, peak_bytes: 3072, peak_bytes_without: 4096}
explanations:
- table: a
  sharding_type: table_wise
  alternatives:
  - {sharding_type: grid_shard, reason: a rule}
- table: b
  sharding_type: row_wise
  alternatives:
  - {sharding_type: table_wise, num_shards: 1, embedding_cost_ms: 15, more_exchanges_ms: -0.25}
  - {sharding_type: column_wise, reason: 1 KiB short}
  - {sharding_type: data_parallel, reason: 1 KiB short}
  - {sharding_type: grid_shard, reason: a rule}
)");
  EXPECT_EQ(PlanAsTable(response),
            "rank  compute_ms  comm_ms  total_ms      memory    used\n"
            "   0      10.000    2.500    12.500  512.00 MiB   50.0%  *\n"
            "   1       9.000    2.000    11.000    1.50 GiB  150.0%  !\n"
            "* the costliest rank; ! over its memory\n"
            "cost 12.500 ms, 2 column splits, strategy neuroshard, search 3.2 ms, model cpu\n"
            "  version 3, 2 tables on 2 ranks, batch 4096 (2048 a rank)\n"
            "sharding: 1 table_wise, 1 row_wise (2 shards)\n"
            "goal max_memory: 175.0% at 12.000, 162.5% at 12.250, 150.0% at 12.500 ms\n"
            "goal moved_bytes: 4.00 KiB at 12.500, 3.00 KiB at 12.500, 3.00 KiB at 12.500 "
            "ms\n"
            "goal cut_tables: 2 at 12.500, 1 at 12.500, 1 at 12.500 ms\n"
            "goal max_stash: 2.00 KiB at 12.500, 1.00 KiB at 12.500, 1.00 KiB at 12.500 ms\n"
            "exchanges: 0.375 ms on every rank (ebc row_wise 0.250, table_wise 0.125)\n"
            "lower bound 12.000 ms, the plan costs 4.2% more (certified)\n"
            "stash: 2 tables, at most 1.00 KiB of a rank; the fullest keeps 3.00 KiB instead\n"
            "  of 4.00 KiB: a, b\n"
            "migration: 3.00 KiB in 2 tables move: b 2.00 KiB, a 1.00 KiB\n"
            "table  type        alternative  shards  plan_ms  more_exchanges_ms  change\n"
            "a      table_wise  -\n"
            "b      row_wise    table_wise        1   15.000             -0.250  +20.0%\n"
            "not for b: column_wise, data_parallel (1 KiB short)\n"
            "for none of these tables: grid_shard (a rule)\n"
            "warning: pooling assumed\n");
  const std::string wide = PlanAsTable(response, {.detail = Detail::kWide});
  EXPECT_THAT(wide,
              HasSubstr("rank  compute_ms  forward_comm_ms  backward_comm_ms  total_ms  dims  "
                        "    memory        of    used\n"
                        "   0      10.000            1.250             1.250    12.500    64  "
                        "512.00 MiB  1.00 GiB   50.0%  *\n"));
  EXPECT_THAT(wide, AllOf(HasSubstr("model cpu version 3"),
                          HasSubstr("the plan costs 4.2% more (certified: all plans)\n")));
  EXPECT_THAT(PlanAsTable(response, {.colour = true}),
              AllOf(HasSubstr("\n\033[1m   0 "), HasSubstr("\n\033[31m   1 ")));
}

std::string BoundLinesOf(const std::string& limit) {
  v1::ShardPlanResponse response;
  EXPECT_THAT(ParseMessageText("lower_bound: {cost_ms: 12, kind: certified, gap_percent: 4.17, "
                               "limit: " +
                                   limit + "}\n",
                               TextFormat::kYaml, &response),
              IsOk());
  const std::string table = PlanAsTable(response);
  return table.substr(table.find("what holds the bound"));
}

TEST(PlanOutputTest, WhatHoldsTheBoundIsSaidWithWhatItIsWithout) {
  EXPECT_EQ(BoundLinesOf("{table: b, rank: 3, shard_ms: 4, every_rank_ms: 8, every_rank_tables: 2, "
                         "rules: [{path: constraints.column_rule, text: one width}], "
                         "bound_without_ms: 9, cost_without_ms: 10}"),
            "what holds the bound: a shard of b costs 4.000 ms at least, beside 8.000 ms on\n"
            "  every rank (2 tables); on rank 3\n"
            "without constraints.column_rule (one width) the bound is 9.000 ms, and a plan\n"
            "  costs 10.000 ms\n");
  EXPECT_EQ(BoundLinesOf("{table: b, shard_ms: 12}"),
            "what holds the bound: a shard of b costs 12.000 ms at least; it cannot be cut\n"
            "  further\n");
  EXPECT_EQ(BoundLinesOf("{rules: [{path: p, text: t}, {path: q, text: u}], bound_without_ms: 9}"),
            "what holds the bound: all tables together\n"
            "without p (t) and q (u) the bound is 9.000 ms\n");
}

// Rank 0 receives twice as many ids.
std::string TableWithInputDist(double total_0, double total_1) {
  v1::ShardPlanResponse response;
  v1::PlanCost& cost = *response.mutable_cost();
  cost.set_embedding_cost_ms(total_0);
  cost.set_mean_of_max_ms(14);
  for (int r = 0; r < 2; ++r) {
    v1::RankCost& rank = *cost.add_ranks();
    rank.set_rank(r);
    rank.set_input_dist_ms(r == 0 ? 1 : 0.5);
    rank.set_compute_ms(10);
    rank.set_forward_comm_ms(1);
    rank.set_total_ms(r == 0 ? total_0 : total_1);
  }
  return PlanAsTable(response);
}

TEST(PlanAsTableTest, TablesInHostMemoryAreCountedAndTheHostsMemoryIsShown) {
  const auto response = FromYaml<v1::ShardPlanResponse>(R"(
plan: {tables: [{name: a, sharding_type: table_wise, compute_kernel: fused},
  {name: b, sharding_type: table_wise, compute_kernel: fused_uvm},
  {name: c, sharding_type: row_wise, compute_kernel: fused_uvm_caching},
  {name: d, sharding_type: row_wise, compute_kernel: fused_uvm_caching},
 {name: e, sharding_type: row_wise, compute_kernel: offload}, {name: f, sharding_type: row_wise, compute_kernel: key_value}]}
cost: {host_memory: [{host: 0, total_bytes: 1610612736, capacity_bytes: 4294967296}, {host: 1, capacity_bytes: 1024}],
  ssd: [{host: 1, total_bytes: 1024, capacity_bytes: 2048}]}
)");
  EXPECT_THAT(
      PlanAsTable(response),
      HasSubstr("sharding: 2 table_wise, 4 row_wise; in host memory: 2 fused_uvm_caching (c, d),\n"
                "  1 fused_uvm (b), 1 offload (e); on SSD: 1 key_value (f)\n"
                "host 0: 1.50 GiB of 4.00 GiB host memory\n"
                "host 1: 0 B of 1.00 KiB host memory\n"
                "host 1: 1.00 KiB of 2.00 KiB SSD\n"));
}

TEST(PlanAsTableTest, DistributionOfIdsIsAStageThatCountsOrIsHidden) {
  EXPECT_THAT(TableWithInputDist(12, 11.5),
              AllOf(HasSubstr("rank  ids_ms  compute_ms  comm_ms  total_ms  "),
                    HasSubstr("   0   1.000      10.000    1.000    12.000  "),
                    HasSubstr("cost 12.000 ms, 14.000 ms on average over the batches (+16.7%), "),
                    Not(HasSubstr("beside the batch before"))));
  EXPECT_THAT(TableWithInputDist(11, 11),
              AllOf(HasSubstr("   1   0.500      10.000    1.000    11.000  "),
                    HasSubstr("ids_ms runs beside the batch before")));
}

// Every type that HugeCTR's embedding collection can hold, on two hosts of two devices.
TEST(PlanAsHugeCtrTest, Golden) {
  const auto plan = FromYaml<v1::Plan>(R"(
world_size: 4
local_world_size: 2
tables:
- {name: tw, sharding_type: table_wise, shards: [{rows: 5, cols: 8, rank: 2}]}
- {name: rw, sharding_type: row_wise,
   shards: [{rows: 2, cols: 8, rank: 0}, {row_offset: 2, rows: 2, cols: 8, rank: 1},
            {row_offset: 4, rows: 1, cols: 8, rank: 2}, {row_offset: 5, rows: 0, cols: 8, rank: 3}]}
- {name: subset, sharding_type: row_wise_subset,
   shards: [{rows: 3, cols: 8, rank: 1}, {row_offset: 3, rows: 2, cols: 8, rank: 3}]}
- {name: twrw, sharding_type: table_row_wise,
   shards: [{rows: 3, cols: 8, rank: 2}, {row_offset: 3, rows: 2, cols: 8, rank: 3}]}
- {name: cw, module: a, sharding_type: column_wise,
   shards: [{rows: 5, cols: 4, rank: 3}, {rows: 5, col_offset: 4, cols: 4, rank: 0}]}
- {name: cw, module: b, sharding_type: column_wise,
   shards: [{rows: 5, cols: 8, rank: 1}, {rows: 5, col_offset: 8, cols: 4, rank: 0},
            {rows: 5, col_offset: 12, cols: 4, rank: 0}]}
- {name: grid, sharding_type: grid_shard,
   shards: [{rows: 3, cols: 4, rank: 2}, {row_offset: 3, rows: 2, cols: 4, rank: 3},
            {rows: 3, col_offset: 4, cols: 4, rank: 0}, {row_offset: 3, rows: 2, col_offset: 4, cols: 4, rank: 1}]}
- {name: dp, sharding_type: data_parallel,
   shards: [{rows: 5, cols: 8, rank: 0}, {rows: 5, cols: 8, rank: 1}, {rows: 5, cols: 8, rank: 2},
            {rows: 5, cols: 8, rank: 3}]}
)");
  const auto text = PlanAsHugeCtr(plan, {});
  ASSERT_THAT(text, IsOk());
  EXPECT_EQ(nlohmann::json::parse(*text), nlohmann::json::parse(R"({
    "format": "neuroshard-hugectr/1", "num_gpus": 4,
    "tables": ["tw", "rw", "subset", "twrw", "a.cw", "b.cw", "grid", "dp"],
    "shard_matrix": [["rw", "a.cw", "b.cw", "grid", "dp"], ["rw", "subset", "b.cw", "grid", "dp"],
                     ["tw", "rw", "twrw", "grid", "dp"], ["rw", "subset", "twrw", "a.cw", "grid", "dp"]],
    "shard_strategy": [["mp", ["tw", "rw", "subset", "twrw", ["a.cw", 2], ["b.cw", 2], ["grid", 2]]],
                       ["dp", ["dp"]]]})"));
}

TEST(PlanAsHugeCtrTest, WhatItCannotRunIsRefusedByName) {
  const auto plan = FromYaml<v1::Plan>(R"(
world_size: 3
tables:
- {name: uneven, sharding_type: column_wise,
   shards: [{rows: 5, cols: 12, rank: 0}, {rows: 5, col_offset: 12, cols: 4, rank: 1}]}
- {name: wide, sharding_type: table_wise, shards: [{rows: 5, cols: 260, rank: 0}]}
- {name: sequence, kind: embedding, sharding_type: table_wise, shards: [{rows: 5, cols: 8}]}
)");
  EXPECT_THAT(PlanAsHugeCtr(plan, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("table uneven has 12 columns on rank 0 and 4 on rank 1"),
                             HasSubstr("table wide has 260 columns on a rank"),
                             HasSubstr("table sequence is unpooled"))));
  // Its tables have no element type, its lookups no weights, and its vectors an end on every rank.
  const auto request = FromYaml<v1::ShardPlanRequest>(R"(
tables: [{name: halves, weight_dtype: fp16}, {name: weighted, weighted: true}, {name: plain, weight_dtype: fp32}]
)");
  EXPECT_THAT(PlanAsHugeCtr(FromYaml<v1::Plan>(R"(
world_size: 1
tables:
- {name: halves, sharding_type: table_wise, shards: [{rows: 5, cols: 8}]}
- {name: weighted, sharding_type: table_wise, shards: [{rows: 5, cols: 8}]}
- {name: plain, sharding_type: data_parallel, shards: [{rows: 5, cols: 260}]}
)"),
                            request.tables()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("table halves has weights of fp16, and those of HugeCTR"),
                             HasSubstr("table weighted has weighted ids"),
                             HasSubstr("table plain has 260 columns on a rank"))));
  // Rows of one block on ranks that do not follow each other.
  EXPECT_THAT(PlanAsHugeCtr(FromYaml<v1::Plan>(R"(
world_size: 4
tables:
- {name: crossed, sharding_type: grid_shard,
   shards: [{rows: 3, cols: 4, rank: 0}, {row_offset: 3, rows: 2, cols: 4, rank: 2},
            {rows: 3, col_offset: 4, cols: 4, rank: 1}, {row_offset: 3, rows: 2, col_offset: 4, cols: 4, rank: 3}]}
)"),
                            {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("table crossed has different columns on ranks 0 and 1")));
  EXPECT_THAT(PlanAsHugeCtr(FromYaml<v1::Plan>(R"(
world_size: 2
tables: [{name: only, sharding_type: table_wise, shards: [{rows: 5, cols: 8, rank: 1}]}]
)"),
                            {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rank 0 has no table")));
}

TEST(PlanAsDistributedEmbeddingsTest, Golden) {
  const auto plan = FromYaml<v1::Plan>(R"(
world_size: 2
local_world_size: 2
tables:
- {name: tw, sharding_type: table_wise, shards: [{rows: 5, cols: 8, rank: 1}]}
- {name: rw, sharding_type: row_wise,
   shards: [{rows: 3, cols: 8, rank: 0}, {row_offset: 3, rows: 2, cols: 8, rank: 1}]}
- {name: cw, sharding_type: column_wise,
   shards: [{rows: 5, cols: 4, rank: 1}, {rows: 5, col_offset: 4, cols: 8, rank: 0},
            {rows: 5, col_offset: 12, cols: 4, rank: 0}]}
- {name: dp, sharding_type: data_parallel, shards: [{rows: 5, cols: 8, rank: 0}, {rows: 5, cols: 8, rank: 1}]}
)");
  const auto text = PlanAsDistributedEmbeddings(plan, {});
  ASSERT_THAT(text, IsOk());
  EXPECT_EQ(nlohmann::json::parse(*text), nlohmann::json::parse(R"({
    "format": "neuroshard-distributed-embeddings/1", "world_size": 2,
    "tables": ["tw", "rw", "cw", "dp"], "data_parallel": [3], "row_slice": [1],
    "table_ids": [[2], [0, 2]], "columns": [[12], [8, 4]]})"));
}

TEST(PlanAsDistributedEmbeddingsTest, WhatItCannotRunIsRefusedByName) {
  const auto plan = FromYaml<v1::Plan>(R"(
world_size: 4
tables:
- {name: some, sharding_type: row_wise_subset,
   shards: [{rows: 3, cols: 8, rank: 1}, {row_offset: 3, rows: 2, cols: 8, rank: 3}]}
- {name: grid, sharding_type: grid_shard,
   shards: [{rows: 3, cols: 4, rank: 2}, {row_offset: 3, rows: 2, cols: 4, rank: 3},
            {rows: 3, col_offset: 4, cols: 4, rank: 0}, {row_offset: 3, rows: 2, col_offset: 4, cols: 4, rank: 1}]}
- {name: half, sharding_type: table_wise, shards: [{rows: 5, cols: 8}]}
- {name: weighted, sharding_type: table_wise, shards: [{rows: 5, cols: 8}]}
- {name: sequence, kind: embedding, sharding_type: table_wise, shards: [{rows: 5, cols: 8}]}
)");
  const auto request = FromYaml<v1::ShardPlanRequest>(
      "tables: [{name: half, weight_dtype: fp16}, {name: weighted, weighted: true}]");
  EXPECT_THAT(
      PlanAsDistributedEmbeddings(plan, request.tables()),
      StatusIs(
          absl::StatusCode::kFailedPrecondition,
          AllOf(HasSubstr("table some is row_wise_subset"), HasSubstr("table grid is grid_shard"),
                HasSubstr("table half has weights of fp16"), HasSubstr("and 2 more"))));
  EXPECT_THAT(PlanAsDistributedEmbeddings(FromYaml<v1::Plan>(R"(
world_size: 2
tables: [{name: only, sharding_type: table_wise, shards: [{rows: 5, cols: 8, rank: 1}]}]
)"),
                                          {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rank 0 has no table")));
}

// Columns of every table on every GPU as HugeCTR lays out what it is given
// (split_column_wise_sharding_config): "name gpu": columns.
std::map<std::string, std::int64_t> HugeCtrColumns(
    const nlohmann::json& given, const std::map<std::string, std::int64_t>& dims) {
  std::map<std::string, std::int64_t> columns;
  for (const nlohmann::json& group : given["shard_strategy"]) {
    for (const nlohmann::json& entry : group[1]) {
      const std::string name = entry.is_string() ? entry : entry[0];
      const std::int64_t factor = entry.is_string() ? 1 : entry[1].get<std::int64_t>();
      std::vector<std::size_t> gpus;
      for (std::size_t gpu = 0; gpu < given["shard_matrix"].size(); ++gpu) {
        const std::vector<std::string> tables = given["shard_matrix"][gpu];
        if (std::count(tables.begin(), tables.end(), name) > 0) gpus.push_back(gpu);
      }
      EXPECT_TRUE(group[0] == "mp" || gpus.size() == given["shard_matrix"].size());
      EXPECT_EQ(dims.at(name) % factor, 0);
      EXPECT_EQ(gpus.size() % static_cast<std::size_t>(factor), 0u);
      for (const std::size_t gpu : gpus) {
        columns[fmt::format("{} {}", name, gpu)] = dims.at(name) / factor;
      }
    }
  }
  return columns;
}

std::map<std::string, std::int64_t> DistributedEmbeddingsColumns(
    const nlohmann::json& given, const std::map<std::string, std::int64_t>& dims) {
  std::map<std::string, std::int64_t> columns;
  const std::vector<std::string> tables = given["tables"];
  for (std::size_t rank = 0; rank < given["table_ids"].size(); ++rank) {
    for (const char* group : {"data_parallel", "row_slice"}) {
      for (const std::size_t id : given[group]) {
        columns[fmt::format("{} {}", tables[id], rank)] = dims.at(tables[id]);
      }
    }
    for (std::size_t i = 0; i < given["table_ids"][rank].size(); ++i) {
      const std::size_t id = given["table_ids"][rank][i];
      columns[fmt::format("{} {}", tables[id], rank)] += given["columns"][rank][i].get<int>();
    }
  }
  return columns;
}

// A table of 16 columns and 8 rows, cut in any way that a type of ours may, on two hosts of two
// ranks.
v1::TablePlan RandomTable(Random& random) {
  v1::TablePlan table;
  const auto add = [&](std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols,
                       int rank) {
    v1::Shard& shard = *table.add_shards();
    shard.set_row_offset(row);
    shard.set_rows(rows);
    shard.set_col_offset(col);
    shard.set_cols(cols);
    shard.set_rank(rank);
  };
  const ShardingType type = kWords<ShardingType>[random.Below(kWords<ShardingType>.size())].value;
  table.set_sharding_type(std::string(ToText(type)));
  std::vector<std::int64_t> widths = {16};
  if (CutsColumns(type)) {
    const std::vector<std::vector<std::int64_t>> cuts = {
        {16}, {8, 8}, {4, 12}, {4, 4, 8}, {4, 4, 4, 4}};
    widths = cuts[random.Below(cuts.size())];
  }
  std::int64_t col = 0;
  for (const std::int64_t cols : widths) {
    std::vector<int> ranks;
    const int host = static_cast<int>(random.Below(2));
    switch (type) {
      case ShardingType::kRowWise:
      case ShardingType::kDataParallel:
        ranks = {0, 1, 2, 3};
        break;
      case ShardingType::kTableRowWise:
      case ShardingType::kGridShard:
        ranks = {2 * host, 2 * host + 1};
        break;
      case ShardingType::kRowWiseSubset:
        ranks = {static_cast<int>(random.Below(2)), 2 + host};
        break;
      default:
        ranks = {static_cast<int>(random.Below(4))};
    }
    const bool copies = type == ShardingType::kDataParallel;
    const std::int64_t rows = copies ? 8 : 8 / static_cast<std::int64_t>(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      add(copies ? 0 : static_cast<std::int64_t>(i) * rows, rows, col, cols, ranks[i]);
    }
    col += cols;
  }
  return table;
}

TEST(OtherTrainersTest, EveryRankHasTheColumnsOfThePlan) {
  Random random(5);
  int hugectr = 0;
  int distributed_embeddings = 0;
  for (int i = 0; i < 5000; ++i) {
    v1::Plan plan;
    plan.set_world_size(4);
    std::map<std::string, std::int64_t> dims;
    std::map<std::string, std::int64_t> planned;
    for (const char* name : {"a", "b", "c", "d"}) {
      v1::TablePlan& table = *plan.add_tables();
      table = RandomTable(random);
      table.set_name(name);
      dims[name] = 16;
      for (const v1::Shard& shard : table.shards()) {
        planned[fmt::format("{} {}", name, shard.rank())] += shard.cols();
      }
    }
    if (const auto text = PlanAsHugeCtr(plan, {}); text.ok()) {
      ASSERT_EQ(HugeCtrColumns(nlohmann::json::parse(*text), dims), planned) << *text;
      ++hugectr;
    }
    if (const auto text = PlanAsDistributedEmbeddings(plan, {}); text.ok()) {
      ASSERT_EQ(DistributedEmbeddingsColumns(nlohmann::json::parse(*text), dims), planned) << *text;
      ++distributed_embeddings;
    }
  }
  EXPECT_GT(hugectr, 200);
  EXPECT_GT(distributed_embeddings, 50);
}

}  // namespace
}  // namespace neuroshard
