#include "client/cli/diff_command.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "client/cli/testing/command_line_fixture.h"
#include "common/base/random.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using testing::CommandLineTest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kPlan;
using ::testing::Not;

// kPlan with table a on rank 1, and what a planner says of it.
constexpr char kMoved[] = R"({"plan": {"world_size": 2, "local_world_size": 2, "tables": [
  {"name": "a", "sharding_type": "table_wise", "compute_kernel": "fused", "shards": [{"rows": 100, "cols": 8, "rank": 1}]},
  {"name": "b", "sharding_type": "column_wise", "compute_kernel": "fused",
   "shards": [{"rows": 50, "cols": 8, "rank": 0}, {"rows": 50, "col_offset": 8, "cols": 8, "rank": 1}]}]},
 "cost": {"embedding_cost_ms": 3, "ranks": [{"compute_ms": 1, "total_ms": 1}, {"rank": 1, "compute_ms": 3, "total_ms": 3}]},
 "cost_model": {"name": "m", "version": 1}, "price_basis": {"text": "prices rest on nothing much"}})";

class DiffCommandTest : public CommandLineTest {
 protected:
  DiffCommandTest() : moved_(Write("moved.json", kMoved)) {}
  std::string moved_;
};

TEST_F(DiffCommandTest, SaysWhatMovesAndHowManyBytes) {
  EXPECT_EQ(Run({"diff", plan_, moved_}), 0) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("a      3.12 KiB  table_wise  0 -> 1\n"),
                          HasSubstr("3.12 KiB of 6.25 KiB move (weights of 4 bytes; "),
                          HasSubstr("1 of 2 tables change"), HasSubstr("cost ? -> 3.000 ms\n"),
                          HasSubstr("note: not both files say what their plan costs"),
                          Not(HasSubstr("\nb "))));
  EXPECT_THAT(err_, IsEmpty());
}

TEST_F(DiffCommandTest, CostsOfBothFilesStandBesideEachOther) {
  std::string other = kMoved;
  other.replace(other.find("\"rank\": 1}]},"), 13, "\"rank\": 0}]},");
  other.replace(other.find("_ms\": 3"), 7, "_ms\": 4");
  EXPECT_EQ(Run({"diff", Write("other.json", other), moved_}), 0) << err_;
  EXPECT_THAT(out_, AllOf(::testing::StartsWith("prices rest on nothing much\n"),
                          HasSubstr("cost 4.000 -> 3.000 ms, 25.0% less"),
                          HasSubstr("   1  3.000 -> 3.000")));
  other.replace(other.find("\"version\": 1"), 12, "\"version\": 2");
  EXPECT_EQ(Run({"diff", Write("other.json", other), moved_}), 0) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("m version 2 and m version 1, and do not compare"),
                          Not(HasSubstr("nothing much"))));
}

TEST_F(DiffCommandTest, DistributionOfIdsIsShownWhereEitherPlanHasIt) {
  std::string other = kMoved;
  other.replace(other.find("\"compute_ms\": 1"), 15, "\"input_dist_ms\": 0.5, \"compute_ms\": 1");
  const std::string with_input_dist = Write("other.json", other);
  EXPECT_EQ(Run({"diff", with_input_dist, moved_}), 0) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("rank  input_dist  "), HasSubstr("0.500 -> -")));
  EXPECT_EQ(Run({"diff", with_input_dist, moved_, "--format", "json"}), 0) << err_;
  const auto json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["ranks"][0]["before"]["input_dist_ms"], 0.5);
  EXPECT_FALSE(json["ranks"][0]["after"].contains("input_dist_ms"));
}

TEST_F(DiffCommandTest, KernelsAreShownWhereTablesAreInHostMemory) {
  std::string plan = testing::kPlan;
  plan.replace(plan.find("\"fused\""), 7, R"("fused_uvm_caching", "cache_load_factor": 0.5)");
  const std::string cached = Write("cached.json", plan);
  EXPECT_EQ(Run({"diff", plan_, cached}), 0) << err_;
  EXPECT_THAT(
      out_, AllOf(HasSubstr("a      3.12 KiB  table_wise  0      fused -> fused_uvm_caching 0.5\n"),
                  HasSubstr("1 of 2 tables change"), Not(HasSubstr("\nb "))));
  plan.replace(plan.find("0.5"), 3, "0.25");
  EXPECT_EQ(Run({"diff", cached, Write("less.json", plan), "--format", "json"}), 0) << err_;
  const auto json = nlohmann::json::parse(out_);
  ASSERT_EQ(json["tables"].size(), 1u);
  EXPECT_EQ(json["tables"][0]["before"]["compute_kernel"], "fused_uvm_caching");
  EXPECT_EQ(json["tables"][0]["before"]["cache_load_factor"], 0.5);
  EXPECT_EQ(json["tables"][0]["after"]["cache_load_factor"], 0.25);
  plan.replace(plan.find("fused_uvm_caching"), 17, "key_value");
  EXPECT_EQ(Run({"diff", cached, Write("on_ssd.json", plan)}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("fused_uvm_caching 0.5 -> key_value 0.25\n"));
}

TEST_F(DiffCommandTest, WithARequestThePlannerPricesBoth) {
  planner_.evaluation.set_legal(true);
  planner_.evaluation.mutable_cost()->set_embedding_cost_ms(5);
  planner_.evaluation.mutable_cost_model()->set_name("m");
  planner_.evaluation.mutable_cost_model()->set_version(7);
  planner_.evaluation.mutable_price_basis()->set_text("prices rest on much");
  EXPECT_EQ(Run({"diff", plan_, moved_, "--request", request_, "--planner", planner_.address(),
                 "--format", "json"}),
            0)
      << err_;
  const auto json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["before"]["cost_ms"], 5.0);
  EXPECT_EQ(json["after"]["cost_ms"], 5.0);
  EXPECT_EQ(json["price_basis"], "prices rest on much");
  EXPECT_EQ(json["weights_are_known"], true);
  EXPECT_EQ(json["tables"][0]["moved_bytes"], 3200);
  ASSERT_EQ(planner_.requests().size(), 2u);
  EXPECT_EQ(planner_.requests()[1].cost_model().version(), 7) << "another model may have landed";
}

TEST_F(DiffCommandTest, APlanThatIsNotTheRequestsIsAFailureThatNamesTheFault) {
  v1::PlanViolation& violation = *planner_.evaluation.add_violations();
  violation.set_field("plan.tables[0].name");
  violation.set_description("no such table");
  EXPECT_EQ(Run({"diff", plan_, moved_, "--request", request_, "--planner", planner_.address()}),
            1);
  EXPECT_THAT(err_, AllOf(HasSubstr("plan.json is no plan of the request"),
                          HasSubstr("plan.tables[0].name: no such table")));
  EXPECT_THAT(out_, IsEmpty());
}

TEST_F(DiffCommandTest, BadInput) {
  EXPECT_EQ(Run({"diff", plan_, plan_}), 2);
  EXPECT_THAT(err_, HasSubstr("the same file"));
  std::filesystem::create_hard_link(plan_, folder_ / "link.json");
  EXPECT_EQ(Run({"diff", plan_, (folder_ / "link.json").string()}), 2);
  EXPECT_EQ(Run({"diff", plan_}), 2);
  EXPECT_EQ(Run({"diff", plan_, moved_, "--model", "m"}), 2) << "--model needs --request";

  const std::string cut = Write("cut.json", std::string(kMoved).substr(0, 300));
  EXPECT_EQ(Run({"diff", cut, (folder_ / "none.json").string()}), 1);
  EXPECT_THAT(err_, AllOf(HasSubstr("cut.json"), HasSubstr("none.json")));

  const std::string others = Write("others.json", R"({"tables": [{"name": "z",
    "sharding_type": "table_wise", "compute_kernel": "fused", "shards": [{"rows": 1, "cols": 4}]}]})");
  EXPECT_EQ(Run({"diff", plan_, others}), 1);
  EXPECT_THAT(err_, HasSubstr("no table in common: a before, z after"));
  EXPECT_EQ(Run({"diff", plan_, Write("empty.json", "{}")}), 1);
  EXPECT_THAT(err_, HasSubstr("empty.json: a plan without tables"));
  EXPECT_THAT(out_, IsEmpty());
}

TEST_F(DiffCommandTest, DamagedFilesAreRefusedWithAllTheirFaults) {
  std::string bad = kMoved;
  const auto replace = [&](const std::string& what, const std::string& with) {
    bad.replace(bad.find(what), what.size(), with);
  };
  replace("\"embedding_cost_ms\": 3", "\"embedding_cost_ms\": -7");
  replace("\"compute_ms\": 3", "\"compute_ms\": \"NaN\"");
  replace("\"name\": \"b\"", "\"name\": \"a\"");
  replace("\"col_offset\": 8", "\"col_offset\": 6");
  EXPECT_EQ(Run({"diff", plan_, Write("bad.json", bad)}), 1);
  EXPECT_THAT(out_, IsEmpty());
  EXPECT_THAT(err_, AllOf(HasSubstr("bad.json"), HasSubstr("cost.embedding_cost_ms: "),
                          HasSubstr("cost.ranks[1].compute_ms: "),
                          HasSubstr("plan.tables[1].name: must be unique"),
                          HasSubstr("plan.tables[1].shards[1].col_offset: ")));
}

Plan OneTable(std::vector<Shard> shards) {
  Plan plan;
  plan.tables.push_back(
      {"t", "", ShardingType::kColumnWise, ComputeKernel::kFused, std::move(shards)});
  return plan;
}

TEST(DiffPlansTest, ATableOfAnotherSizeIsNewAndMovesNothing) {
  const auto diff = DiffPlans(OneTable({{0, 10, 0, 8, 0}}), OneTable({{0, 12, 0, 8, 1}}), {});
  ASSERT_TRUE(diff.ok()) << diff.status();
  ASSERT_EQ(diff->tables_size(), 1);
  EXPECT_TRUE(diff->tables(0).resized());
  EXPECT_EQ(diff->moved_bytes(), 0);
}

TEST(DiffPlansTest, ATableThatGoesToAnotherMemoryMovesWhole) {
  const Plan before = OneTable({{0, 10, 0, 8, 0}});
  Plan after = before;
  after.tables[0].compute_kernel = ComputeKernel::kFusedUvm;
  EXPECT_EQ(DiffPlans(before, after, {})->moved_bytes(), 10 * 8 * 4);
  Plan cached = after;
  cached.tables[0].compute_kernel = ComputeKernel::kFusedUvmCaching;
  cached.tables[0].cache_load_factor = 0.5;
  EXPECT_EQ(DiffPlans(after, cached, {})->moved_bytes(), 0);
  cached.tables[0].compute_kernel = ComputeKernel::kKeyValue;
  EXPECT_EQ(DiffPlans(after, cached, {})->moved_bytes(), 10 * 8 * 4);
}

TEST(DiffPlansTest, TypesOfWeightsCountAndTheSamePlanMovesNothing) {
  const Plan before = OneTable({{0, 10, 0, 8, 0}});
  Table table;
  table.name = "t";
  table.weight_dtype = DataType::kFp16;
  const auto moved = DiffPlans(before, OneTable({{0, 10, 0, 4, 1}, {0, 10, 4, 4, 0}}), {table});
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(moved->moved_bytes(), 10 * 4 * 2);
  EXPECT_EQ(moved->weight_bytes(), 10 * 8 * 2);
  EXPECT_THAT(moved->tables(0).after().ranks(), ElementsAre(0, 1));
  const auto same = DiffPlans(before, before, {});
  ASSERT_TRUE(same.ok());
  EXPECT_THAT(same->tables(), IsEmpty());
}

// Cell by cell.
TEST(DiffPlansTest, MovedBytesAreTheCellsThatAreNewOnTheirRanks) {
  Random random(7);
  constexpr int kRows = 6, kCols = 8, kRanks = 3;
  // Any tiling of the table by one cut in each direction.
  const auto any = [&random] {
    const std::int64_t row = random.Between(0, kRows), col = random.Between(0, kCols);
    std::vector<Shard> shards;
    for (const auto& [r, rows] : {std::pair{std::int64_t{0}, row}, {row, kRows - row}}) {
      for (const auto& [c, cols] : {std::pair{std::int64_t{0}, col}, {col, kCols - col}}) {
        if (rows > 0 && cols > 0) {
          shards.push_back({r, rows, c, cols, static_cast<int>(random.Between(0, kRanks - 1))});
        }
      }
    }
    return shards;
  };
  const auto holds = [](const std::vector<Shard>& shards, int rank, int r, int c) {
    return std::any_of(shards.begin(), shards.end(), [&](const Shard& s) {
      return s.rank == rank && r >= s.row_offset && r < s.row_offset + s.rows &&
             c >= s.col_offset && c < s.col_offset + s.cols;
    });
  };
  for (int i = 0; i < 300; ++i) {
    const std::vector<Shard> before = any(), after = any();
    std::int64_t cells = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < kCols; ++c) {
          cells += holds(after, rank, r, c) && !holds(before, rank, r, c) ? 1 : 0;
        }
      }
    }
    const auto diff = DiffPlans(OneTable(before), OneTable(after), {});
    ASSERT_TRUE(diff.ok()) << diff.status();
    EXPECT_EQ(diff->moved_bytes(), 4 * cells) << i;
  }
}

}  // namespace
}  // namespace neuroshard
