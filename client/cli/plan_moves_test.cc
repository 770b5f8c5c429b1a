#include "client/cli/plan_moves.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "client/cli/testing/command_line_fixture.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using testing::CommandLineTest;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Without the wrapping.
std::string OnOneLine(const std::string& text) {
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

// kPlan has a on rank 0 and halves of b on both; the planner answers a on 0, b on 1.
class EmitMovesTest : public CommandLineTest {
 protected:
  EmitMovesTest() : moves_((folder_ / "moves.json").string()) {}

  int Ask(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {
        "plan",       request_, "--planner",    planner_.address(),
        "--previous", plan_,    "--emit-moves", moves_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(std::move(arguments));
  }
  nlohmann::json Moves() {
    const auto text = ReadTextFile(moves_);
    return text.ok() ? nlohmann::json::parse(*text) : nlohmann::json();
  }

  std::string moves_;
};

TEST_F(EmitMovesTest, WhatTravelsIsInTheFile) {
  ASSERT_EQ(Ask({"--format", "json"}), 0) << err_;
  EXPECT_TRUE(nlohmann::json::accept(out_));
  const auto moves = Moves();
  EXPECT_EQ(moves["format"], "neuroshard-moves/1");
  EXPECT_EQ(moves["order"], "fits");
  EXPECT_EQ(moves["buffer_bytes"], 0);
  EXPECT_EQ(moves["bytes"]["intra_host"], 50 * 8 * 4);
  ASSERT_THAT(moves["steps"], SizeIs(1));
  const auto& made = moves["steps"][0]["make"];
  ASSERT_THAT(made, SizeIs(1));
  EXPECT_EQ(made[0]["table"], "b");
  EXPECT_EQ(made[0]["rank"], 1);
  EXPECT_EQ(made[0]["cols"], 16);
  ASSERT_THAT(made[0]["parts"], SizeIs(2));
  EXPECT_EQ(made[0]["parts"][0]["link"], "same_rank");
  EXPECT_EQ(made[0]["parts"][0]["col_offset"], 8);
  EXPECT_EQ(made[0]["parts"][1]["from_rank"], 0);
  EXPECT_THAT(moves["steps"][0]["free"], SizeIs(2));
  EXPECT_EQ(moves["tables"][0]["torchrec_live"], false);
  EXPECT_THAT(moves["tables"][0]["reason"], HasSubstr("column_wise does not become table_wise"));
  // The half that stays beside the whole that is new.
  EXPECT_EQ(moves["ranks"][1]["peak_bytes"], 50 * 8 * 4 + 50 * 16 * 4);
  EXPECT_THAT(err_, AllOf(HasSubstr("moves: intra_host 1.56 KiB in 1 table and 1 step"),
                          HasSubstr("can move 0 of them in a running job")));
}

TEST_F(EmitMovesTest, ACycleIsSaidInWords) {
  const std::string request = Write("swap.yaml", R"(
tables:
- {name: a, num_embeddings: 100, embedding_dim: 8, pooling_factor: 2, zipf_exponent: 1}
- {name: b, num_embeddings: 100, embedding_dim: 8, pooling_factor: 1, zipf_exponent: 1}
topology: {hosts: [{num_devices: 2, memory_bytes: 4000}]}
memory: {rule: weights_only}
)");
  plan_ = Write("before.json", R"({"world_size": 2, "tables": [
    {"name": "a", "sharding_type": "table_wise", "compute_kernel": "fused", "shards": [{"rows": 100, "cols": 8, "rank": 1}]},
    {"name": "b", "sharding_type": "row_wise", "compute_kernel": "fused",
     "shards": [{"rows": 100, "cols": 8, "rank": 0}, {"row_offset": 100, "cols": 8, "rank": 1}]}]})");
  request_ = request;
  ASSERT_EQ(Ask(), 0) << err_;
  EXPECT_EQ(Moves()["order"], "needs_buffer");
  EXPECT_EQ(Moves()["buffer_bytes"], 3200);
  EXPECT_THAT(Moves()["cycle"], SizeIs(2));
  EXPECT_EQ(Moves()["cycle"][0]["memory"], "device");
  const auto moves = Moves();
  for (const auto& table : moves["tables"]) EXPECT_EQ(table["torchrec_live"], false);
  EXPECT_THAT(OnOneLine(err_),
              AllOf(HasSubstr("can move 0 of them in a running job; a: its ranks have no room"),
                    HasSubstr("; b: row_wise is not"),
                    HasSubstr("no order fits without a buffer of 3.12 KiB")));
}

// What moves is the same in the moves' file and for `diff`.
TEST_F(EmitMovesTest, ATableThatChangesMemoryOnItsRankMoves) {
  request_ = Write("hosts.yaml", R"(
tables:
- {name: a, num_embeddings: 100, embedding_dim: 8, pooling_factor: 2, zipf_exponent: 1}
- {name: b, num_embeddings: 100, embedding_dim: 8, pooling_factor: 1, zipf_exponent: 1}
topology: {hosts: [{num_devices: 2, memory_bytes: 10000, host_memory_bytes: 10000}]}
memory: {rule: weights_only}
)");
  plan_ = Write("before.json", R"({"world_size": 2, "tables": [
    {"name": "a", "sharding_type": "table_wise", "compute_kernel": "fused_uvm", "shards": [{"rows": 100, "cols": 8, "rank": 0}]},
    {"name": "b", "sharding_type": "table_wise", "compute_kernel": "fused", "shards": [{"rows": 100, "cols": 8, "rank": 1}]}]})");
  const std::string plan = (folder_ / "new.json").string();
  ASSERT_EQ(Ask({"--format", "json", "--out", plan}), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("moves: between_memories 3.12 KiB in 1 table and 1 step"));
  const auto moves = Moves();
  EXPECT_EQ(moves["bytes"]["between_memories"], 3200);
  EXPECT_EQ(moves["bytes"]["intra_host"], 0);
  const auto& part = moves["steps"][0]["make"][0]["parts"][0];
  EXPECT_EQ(part["link"], "same_rank");
  EXPECT_EQ(part["from_memory"], "host");
  EXPECT_EQ(part["memory"], "device");
  ASSERT_THAT(moves["shared_memory"], SizeIs(1));
  EXPECT_EQ(moves["shared_memory"][0]["memory"], "host");
  EXPECT_EQ(moves["shared_memory"][0]["peak_bytes"], 3200);
  EXPECT_EQ(moves["shared_memory"][0]["capacity_bytes"], 10000);
  EXPECT_FALSE(moves["shared_memory"][0].contains("rank"));
  ASSERT_EQ(Run({"diff", plan_, plan, "--format", "json"}), 0) << err_;
  EXPECT_EQ(nlohmann::json::parse(out_)["moved_bytes"], 3200);
}

TEST_F(EmitMovesTest, ARunningJobKeepsItsNumberOfRanks) {
  plan_ = Write("before.json", R"({"world_size": 3, "tables": [
    {"name": "a", "sharding_type": "table_wise", "compute_kernel": "fused", "shards": [{"rows": 100, "cols": 8, "rank": 1}]},
    {"name": "b", "sharding_type": "table_wise", "compute_kernel": "fused", "shards": [{"rows": 50, "cols": 16, "rank": 0}]}]})");
  ASSERT_EQ(Ask(), 0) << err_;
  ASSERT_THAT(Moves()["tables"], SizeIs(2));
  const auto moves = Moves();
  for (const auto& table : moves["tables"]) EXPECT_EQ(table["torchrec_live"], false);
  EXPECT_THAT(OnOneLine(err_),
              HasSubstr("can move 0 of them in a running job; a, b: a running job keeps"));
}

TEST_F(EmitMovesTest, AHyphenIsStandardOutputAndThePlanIsInItsFile) {
  moves_ = "-";
  const std::string plan = (folder_ / "new.json").string();
  ASSERT_EQ(Ask({"--format", "json", "--out", plan}), 0) << err_;
  EXPECT_EQ(nlohmann::json::parse(out_)["format"], "neuroshard-moves/1");
  EXPECT_TRUE(ReadTextFile(plan).ok());
  EXPECT_FALSE(std::filesystem::exists("-"));
  // Both at once would be no document.
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, std::vector<std::string>{"--out", "-"}}) {
    const int calls = planner_.calls();
    EXPECT_EQ(Ask(more), 2);
    EXPECT_THAT(err_, HasSubstr("give it a file: --out"));
    EXPECT_EQ(planner_.calls(), calls);
  }
}

TEST_F(EmitMovesTest, WithoutAPlanInPlaceNothingIsAsked) {
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--emit-moves", moves_}), 1);
  EXPECT_THAT(err_, HasSubstr("--emit-moves needs a plan to move from"));
  EXPECT_THAT(out_, IsEmpty());
  EXPECT_EQ(planner_.calls(), 0);
}

TEST_F(EmitMovesTest, AFileThatCannotBeWrittenIsFoundFirst) {
  moves_ = "/nowhere/moves.json";
  EXPECT_EQ(Ask(), 1);
  EXPECT_EQ(planner_.calls(), 0);
}

TEST(TorchRecFaultTest, NamesWhatReshardCannotMove) {
  PlanRequest request;
  Table table;
  table.name = "t";
  table.num_embeddings = 10;
  table.embedding_dim = 16;
  request.tables = {table};
  request.memory.rule = MemoryRule::kWeightsOnly;
  request.topology.devices = {{0, 10'000}, {0, 10'000}};
  const auto whole = [](int rank) {
    return TablePlan{
        "t", "", ShardingType::kTableWise, ComputeKernel::kFused, {{0, 10, 0, 16, rank}}};
  };
  const TablePlan halves = {"t",
                            "",
                            ShardingType::kColumnWise,
                            ComputeKernel::kFused,
                            {{0, 10, 0, 8, 0}, {0, 10, 8, 8, 1}}};
  const auto fault = [&](const TablePlan& before, const TablePlan& after) {
    request.migration.emplace().previous.tables = {before};
    Plan plan;
    plan.tables = {after};
    const auto moves = MovesOf(request, plan);
    EXPECT_TRUE(moves.ok() && moves->tables_size() == 1) << moves.status();
    return moves->tables(0).reason();
  };
  EXPECT_EQ(fault(whole(0), whole(1)), "");
  EXPECT_THAT(fault(whole(0), halves), HasSubstr("table_wise does not become column_wise"));
  TablePlan one_block = whole(1);
  one_block.sharding_type = ShardingType::kColumnWise;
  EXPECT_EQ(fault(one_block, halves), "");
  request.topology.compute_device = ComputeDevice::kCpu;
  EXPECT_THAT(fault(one_block, halves), HasSubstr("gloo"));
  request.topology.compute_device.reset();
  TablePlan both_on_one = halves;
  both_on_one.shards[1].rank = 0;
  EXPECT_EQ(fault(both_on_one, halves), "");
  TablePlan uneven = halves;
  uneven.shards[0].cols = uneven.shards[1].col_offset = 4;
  uneven.shards[1].cols = 12;
  EXPECT_THAT(fault(uneven, halves), HasSubstr("different widths"));
  EXPECT_THAT(fault(one_block, both_on_one), HasSubstr("second shard"));
  EXPECT_THAT(fault(whole(7), whole(1)), HasSubstr("rank 7 is gone"));
  TablePlan rows = whole(1);
  rows.sharding_type = ShardingType::kRowWise;
  EXPECT_THAT(fault(whole(0), rows), HasSubstr("row_wise"));
  TablePlan dense = whole(1);
  dense.compute_kernel = ComputeKernel::kDense;
  EXPECT_THAT(fault(whole(0), dense), HasSubstr("dense"));
  request.optimizer = Optimizer::kRowwiseAdagrad;
  EXPECT_EQ(fault(whole(0), whole(1)), "");
  EXPECT_THAT(fault(one_block, halves), HasSubstr("Adagrad"));
  request.tables[0].kind = TableKind::kEmbedding;
  EXPECT_THAT(fault(whole(0), whole(1)), HasSubstr("unpooled"));
}

}  // namespace
}  // namespace neuroshard
