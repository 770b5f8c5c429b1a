#include "client/cli/plan_from_torchrec.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>

#include <string>

#include "client/cli/plan_output.h"
#include "client/cli/testing/command_line_fixture.h"
#include "common/codec/message_text.h"
#include "tests/support/faulty_fields.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using testing::CommandLineTest;
using ::testing::HasSubstr;
using testing::IsOk;

// Every type that TorchRec has, in several modules, one table unpooled and two behind caches.
constexpr char kAllTypes[] = R"(
world_size: 4
tables:
- {name: a, module: m.ebc, sharding_type: table_wise, compute_kernel: fused, shards: [{rows: 10, cols: 16, rank: 2}]}
- {name: b, module: m.ebc, sharding_type: column_wise, compute_kernel: fused_uvm_caching, cache_load_factor: 0.3,
   shards: [{rows: 10, cols: 8, rank: 1}, {rows: 10, col_offset: 8, cols: 8, rank: 0}]}
- {name: c, module: m.ebc, sharding_type: row_wise, compute_kernel: fused,
   shards: [{rows: 2, cols: 8, rank: 0}, {row_offset: 2, rows: 2, cols: 8, rank: 1}, {row_offset: 4, rows: 1, cols: 8, rank: 2}, {row_offset: 5, rows: 0, cols: 8, rank: 3}]}
- {name: d, module: other, sharding_type: table_row_wise, compute_kernel: fused_uvm, shards: [{rows: 5, cols: 8, rank: 2}, {row_offset: 5, rows: 5, cols: 8, rank: 3}]}
- {name: e, module: other, sharding_type: table_column_wise, compute_kernel: fused, shards: [{rows: 9, cols: 4, rank: 2}, {rows: 9, col_offset: 4, cols: 4, rank: 3}]}
- {name: f, module: other, sharding_type: grid_shard, compute_kernel: fused, shards: [
     {rows: 3, cols: 4, rank: 0}, {row_offset: 3, rows: 3, cols: 4, rank: 1}, {col_offset: 4, rows: 3, cols: 4, rank: 2}, {row_offset: 3, rows: 3, col_offset: 4, cols: 4, rank: 3}]}
- {name: g, sharding_type: data_parallel, compute_kernel: dense,
   shards: [{rows: 7, cols: 12, rank: 0}, {rows: 7, cols: 12, rank: 1}, {rows: 7, cols: 12, rank: 2}, {rows: 7, cols: 12, rank: 3}]}
- {name: h, module: seq, kind: embedding, sharding_type: column_wise, compute_kernel: key_value, cache_load_factor: 0.5,
   shards: [{rows: 10, cols: 8, rank: 3}, {rows: 10, col_offset: 8, cols: 8, rank: 2}]}
)";

v1::Plan AllTypes() {
  v1::Plan plan;
  EXPECT_THAT(ParseMessageText(kAllTypes, TextFormat::kYaml, &plan), IsOk());
  return plan;
}

v1::ShardPlanRequest RequestOf(const v1::Plan& plan) {
  v1::ShardPlanRequest request;
  v1::HostGroup& host = *request.mutable_topology()->add_hosts();
  host.set_count(2);
  host.set_num_devices(2);
  for (const v1::TablePlan& of : plan.tables()) {
    v1::Table& table = *request.add_tables();
    table.set_name(of.name());
    table.set_module(of.module());
    for (const v1::Shard& shard : of.shards()) {
      table.set_num_embeddings(std::max(table.num_embeddings(), shard.row_offset() + shard.rows()));
      table.set_embedding_dim(std::max(table.embedding_dim(), shard.col_offset() + shard.cols()));
    }
  }
  return request;
}

nlohmann::ordered_json Written(const v1::Plan& plan, const char* device) {
  const auto text = PlanAsTorchRec(plan, RequestOf(plan).topology(), device);
  EXPECT_THAT(text, IsOk());
  return nlohmann::ordered_json::parse(*text);
}

TEST(PlanFromTorchRecTest, WhatIsWrittenIsReadBack) {
  const v1::Plan plan = AllTypes();
  v1::Plan expected = plan;
  for (v1::TablePlan& table : *expected.mutable_tables()) table.clear_kind();  // not in the form
  for (const char* device : {"cuda", "cpu"}) {
    auto document = Written(plan, device);
    document["format"] = "neuroshard-torchrec/1";  // as save_plan writes it
    ASSERT_TRUE(IsTorchRecPlan(document));
    auto read = PlanFromTorchRec(document);
    ASSERT_THAT(read, IsOk());
    v1::Plan from_other = *read;
    CompleteFromRequest(RequestOf(plan), *read);
    EXPECT_EQ(read->local_world_size(), 2);
    read->clear_local_world_size();
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equivalent(*read, expected)) << device;
    CompleteReplicas(plan, from_other);
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equivalent(from_other, expected));
  }
}

TEST(PlanFromTorchRecTest, RanksWithoutTablesCountWhereTheRequestHasThem) {
  v1::Plan plan = AllTypes();
  plan.mutable_tables()->DeleteSubrange(1, plan.tables_size() - 1);  // on rank 2 alone
  auto read = PlanFromTorchRec(Written(plan, "cuda"));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->world_size(), 3);
  CompleteFromRequest(RequestOf(plan), *read);
  EXPECT_EQ(read->world_size(), 4);
}

TEST(PlanFromTorchRecTest, NamesEveryFault) {
  const auto document = nlohmann::ordered_json::parse(R"({"plan": {
    "m": {"a": {"sharding_type": "table_wise", "compute_kernel": 3, "ranks": [0],
                "shards": [{"shard_offsets": [0, -1], "shard_sizes": [1], "placement": "rank:x/cuda:0"}, {}]},
          "b": 7,
          "c": {"sharding_type": "data_parallel", "compute_kernel": "dense", "ranks": [-1, 0]},
          "d": {"sharding_type": "row_wise", "compute_kernel": "fused", "shards": null, "cache_load_factor": "much"}},
    "n": []}})");
  EXPECT_THAT(
      FaultyFields(PlanFromTorchRec(document).status()),
      ::testing::UnorderedElementsAre(
          "plan[\"m\"][\"a\"].compute_kernel", "plan[\"m\"][\"a\"].shards[0].shard_offsets",
          "plan[\"m\"][\"a\"].shards[0].shard_sizes", "plan[\"m\"][\"a\"].shards[0].placement",
          "plan[\"m\"][\"a\"].shards[1]", "plan[\"m\"][\"a\"].shards[1]",
          "plan[\"m\"][\"a\"].shards[1]", "plan[\"m\"][\"b\"]", "plan[\"m\"][\"c\"].ranks[0]",
          "plan[\"m\"][\"d\"].cache_load_factor", "plan[\"m\"][\"d\"].shards", "plan[\"n\"]"));
}

TEST(PlanFromTorchRecTest, PlansOfOurOwnAreNotTakenForOne) {
  for (const char* text :
       {R"({"plan": {"world_size": 2, "tables": []}})", R"({"plan": {"tables": []}})",
        R"({"world_size": 2, "tables": []})", "[]", R"({"plan": 3})"}) {
    EXPECT_FALSE(IsTorchRecPlan(nlohmann::ordered_json::parse(text))) << text;
  }
}

// kPlan as the other commands see it.
constexpr char kOfTorchRec[] = R"({"plan": {"": {
  "b": {"sharding_type": "data_parallel", "compute_kernel": "dense", "ranks": [0, 1], "shards": null},
  "a": {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [1],
        "shards": [{"shard_offsets": [0, 0], "shard_sizes": [100, 8], "placement": "rank:1/cuda:1"}]}}}})";

TEST_F(CommandLineTest, EveryCommandTakesAPlanInTorchRecsForm) {
  const std::string plan = Write("torchrec.json", kOfTorchRec);
  planner_.evaluation.set_legal(true);
  planner_.evaluation.mutable_cost()->set_embedding_cost_ms(2);
  ASSERT_EQ(Run({"evaluate", request_, plan, "--planner", planner_.address()}), 0) << err_;
  const v1::Plan evaluated = planner_.evaluated;
  ASSERT_EQ(evaluated.tables_size(), 2);
  EXPECT_EQ(evaluated.world_size(), 2);
  EXPECT_EQ(evaluated.tables(0).shards(1).rows(), 50);
  EXPECT_EQ(evaluated.tables(0).shards(1).cols(), 16);
  EXPECT_EQ(evaluated.tables(0).module(), "");
  ASSERT_EQ(Run({"diff", plan_, plan}), 0) << err_;
  EXPECT_THAT(out_,
              AllOf(::testing::ContainsRegex("table_wise +0 -> 1"), HasSubstr("data_parallel")));
  ASSERT_EQ(Run({"diff", plan, plan_, "--request", request_, "--planner", planner_.address()}), 0)
      << err_;
  v1::Plan previous;
  const auto plan_as_before = planner_.plan;
  planner_.plan = [&](const v1::ShardPlanRequest& request, v1::ShardPlanResponse* response) {
    previous = request.migration().previous();
    return plan_as_before(request, response);
  };
  ASSERT_EQ(Run({"plan", request_, "--previous", plan, "--planner", planner_.address()}), 0)
      << err_;
  EXPECT_EQ(previous.tables(0).shards(0).cols(), 16);
}

// A plan of TorchRec has the module's path, which requests need not have.
TEST_F(CommandLineTest, ModulesOfATorchRecPlanAreTheRequestsWhereNamesAreUnique) {
  std::string text = kOfTorchRec;
  text.replace(text.find("\"\""), 2, "\"ebc\"");
  ASSERT_EQ(Run({"evaluate", request_, Write("ebc.json", text), "--planner", planner_.address()}),
            1);
  ASSERT_EQ(planner_.evaluated.tables_size(), 2);
  for (const v1::TablePlan& table : planner_.evaluated.tables()) EXPECT_EQ(table.module(), "");

  v1::ShardPlanRequest request;
  for (const char* module : {"ebc", "other"}) {
    v1::Table& table = *request.add_tables();
    table.set_module(module);
    table.set_name("a");
  }
  v1::Plan plan;
  plan.add_tables()->set_name("a");
  CompleteFromRequest(request, plan);
  EXPECT_EQ(plan.tables(0).module(), "");  // either may be meant
}

// A path may be split between module and name in more than one way.
TEST(PlanFromTorchRecTest, AnEntryTakesModuleAndNameOfTheTableWithItsFullName) {
  v1::ShardPlanRequest request;
  v1::Table& table = *request.add_tables();
  table.set_module("a.b");
  table.set_name("t");
  v1::Plan plan;
  v1::TablePlan& entry = *plan.add_tables();
  entry.set_module("a");
  entry.set_name("b.t");
  CompleteFromRequest(request, plan);
  EXPECT_EQ(plan.tables(0).module(), "a.b");
  EXPECT_EQ(plan.tables(0).name(), "t");
}

}  // namespace
}  // namespace neuroshard
