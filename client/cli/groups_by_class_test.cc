#include "client/cli/groups_by_class.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/cli/testing/command_line_fixture.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using testing::CommandLineTest;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kBothKinds[] = R"(
tables:
- {name: a, num_embeddings: 100, embedding_dim: 8, pooling_factor: 2, zipf_exponent: 1}
- {name: b, num_embeddings: 50, embedding_dim: 16, pooling_factor: 1, zipf_exponent: 1, kind: embedding}
topology: {hosts: [{num_devices: 2, memory_bytes: 100000}]}
global_batch_size: 64
)";
constexpr char kEight[] = R"(
topologies:
- name: eight
  topology:
    hosts: [{count: 2, num_devices: 4, memory_bytes: 100000, host_memory_bytes: 4000}]
    bandwidths: {intra_host_bytes_per_s: 4e6, inter_host_bytes_per_s: 1e6}
  two_dimensional: {sync_interval_batches: 2}
)";

// All tables cost 10 ms in any groups. Alone, a costs 6 ms in groups of 4, and in one of 8 2 ms on
// rank 0, 1.8 ms on rank 1 and 1 ms elsewhere; b costs 7 ms in a group of 8, and in those of 4 1 ms
// in the second place and 0.5 ms elsewhere, but in those of a host 0.4 and 0.2 ms.
class GroupsByClassTest : public CommandLineTest {
 protected:
  GroupsByClassTest() {
    request_ = Write("request.yaml", kBothKinds);
    topologies_ = Write("topologies.yaml", kEight);
    planner_.plan = [this](const v1::ShardPlanRequest& request, v1::ShardPlanResponse* response) {
      const bool both = request.tables_size() == 2;
      const bool pooled = request.tables(0).name() == "a";
      const int size = static_cast<int>(request.global_batch_size() / 8);
      if (both && !has_rows_) return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "full");
      if (!both && !pooled && size == 8 && !fault_of_b_.ok()) return fault_of_b_;
      const std::int64_t reserve = request.memory().reserve_bytes();
      std::int64_t bytes = both || pooled ? pooled_bytes_ : unpooled_bytes_;
      if (!both && pooled && size == 4) bytes = pooled_bytes_of_four_;
      const bool is_beside = reserve + bytes > 100000 && !pooled;
      if (is_beside) bytes = unpooled_bytes_beside_;
      if (reserve + bytes > 100000) {
        return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "full");
      }
      response->mutable_plan()->set_world_size(size);
      double most = 0;
      for (int rank = 0; rank < size; ++rank) {
        double cost = 10;
        if (!both && pooled) cost = size == 4 ? 6 : rank == 0 ? 2 : rank == 1 ? 1.8 : 1;
        if (!both && !pooled) {
          const bool on_a_host = request.topology().hosts(0).num_devices() == 4;
          cost = size == 8 ? 7 : on_a_host ? rank == 1 ? 0.4 : 0.2 : rank == 1 ? 1 : 0.5;
        }
        const bool is_small = has_small_devices_ && rank % 4 == 3;
        v1::RankCost& of = *response->mutable_cost()->add_ranks();
        of.set_compute_ms(cost);
        of.mutable_memory()->set_weights_bytes(is_small ? 0 : bytes);
        of.mutable_memory()->set_host_weights_bytes(is_beside ? host_bytes_beside_ : host_bytes_);
        of.mutable_memory()->set_reserve_bytes(reserve);
        of.mutable_memory()->set_capacity_bytes(is_small ? 10 : 100000);
        most = std::max(most, cost);
      }
      response->mutable_cost()->set_embedding_cost_ms(most);
      for (const v1::Table& asked : request.tables()) {
        v1::TablePlan& table = *response->mutable_plan()->add_tables();
        table.set_name(asked.name());
        table.set_sharding_type("table_wise");
        table.set_compute_kernel("fused");
        v1::Shard& shard = *table.add_shards();
        shard.set_rows(asked.num_embeddings());
        shard.set_cols(asked.embedding_dim());
      }
      response->mutable_cost_model()->set_name(pooled ? "analytic" : model_of_b_);
      response->add_warnings("said of every plan");
      if (!both && !pooled) response->add_warnings(is_beside ? "b beside a" : "b alone");
      response->mutable_price_basis()->set_kind(pooled ? "measured" : "published");
      return grpc::Status::OK;
    };
  }

  nlohmann::json Rows() {
    EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--what-if", topologies_,
                   "--format", "json"}),
              0)
        << err_;
    return nlohmann::json::parse(out_)["rows"];
  }

  std::string topologies_;
  bool has_rows_ = true;
  bool has_small_devices_ = false;
  grpc::Status fault_of_b_;
  std::int64_t pooled_bytes_ = 60000;
  std::int64_t pooled_bytes_of_four_ = 60000;
  std::int64_t unpooled_bytes_ = 30000;
  std::int64_t unpooled_bytes_beside_ = 1 << 20;
  std::int64_t host_bytes_ = 0;
  std::int64_t host_bytes_beside_ = 0;
  std::string model_of_b_ = "analytic";
};

TEST_F(GroupsByClassTest, TheFastestPairIsARowAndSharesTheRanks) {
  const auto rows = Rows();
  ASSERT_EQ(rows.size(), 4u);
  const auto& row = rows[3];
  EXPECT_EQ(row["name"], "eight in groups of 8, EmbeddingCollection in groups of 4");
  // Rank 0 is the costliest: the second place of alternating groups is ranks 2 and 3. Those of a host
  // would be cheaper, and averaging between hosts dearer than that.
  EXPECT_EQ(row["embedding_cost_ms"], 2.5);
  EXPECT_EQ(row["fullest_memory"]["total_bytes"], 90000);
  EXPECT_EQ(row["price_basis"]["kind"], "published") << "of the kind that was not measured";
  EXPECT_EQ(row["warnings"].size(), 3u) << row["warnings"] << ": of plans, of b and of hosts";
  const auto& groups = row["two_dimensional"];
  EXPECT_EQ(groups["sharding_group_size"], 8);
  EXPECT_EQ(groups["replicas"], 1);
  EXPECT_EQ(groups["plan"]["tables"][0]["name"], "a");
  // b's 3200 bytes between two replicas on a host, in every second batch.
  EXPECT_NEAR(groups["sync_ms"], 0.8, 1e-9);
  EXPECT_NEAR(row["samples_per_second"], 64e3 / (2.5 + 0.4), 1e-6);
  ASSERT_EQ(groups["submodule_configs"].size(), 1u);
  const auto& submodule = groups["submodule_configs"][0];
  EXPECT_EQ(submodule["kind"], "embedding");
  EXPECT_EQ(submodule["sharding_group_size"], 4);
  EXPECT_EQ(submodule["use_inter_host_allreduce"], false);
  EXPECT_EQ(submodule["replicas"], 2);
  EXPECT_EQ(submodule["sync_bytes"], 3200);
  EXPECT_EQ(submodule["plan"]["tables"][0]["name"], "b");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["two_dimensional"]["fastest"], i == 3);
    EXPECT_EQ(rows[i]["two_dimensional"].contains("plan"), i == 3);
  }
  EXPECT_EQ(planner_.calls(), 3 * 3) << "pairs are priced without calls";
}

TEST_F(GroupsByClassTest, AsATable) {
  ASSERT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--what-if", topologies_}), 0);
  EXPECT_THAT(out_,
              HasSubstr("eight in groups of 8, EmbeddingCollection in groups of 4        8    "
                        "2.500    0.400"));
  EXPECT_THAT(out_, HasSubstr("EmbeddingCollection in groups of 4: fastest groups of this"));
}

TEST_F(GroupsByClassTest, APlanIsMadeInWhatTheOtherLeaves) {
  unpooled_bytes_ = 50000;
  unpooled_bytes_beside_ = 35000;
  host_bytes_ = host_bytes_beside_ = 600;  // twice that is more than the 1000 of a device
  EXPECT_EQ(Rows().size(), 3u) << "the plans made again take as much of the host";
  host_bytes_ = host_bytes_beside_ = 500;
  const auto rows = Rows();
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[3]["name"], "eight in groups of 8, EmbeddingCollection in groups of 4");
  EXPECT_EQ(rows[3]["fullest_memory"]["total_bytes"], 95000);
  EXPECT_EQ(rows[3]["fullest_memory"]["reserve_bytes"], 0) << "the room of the other plan is none";
  EXPECT_THAT(rows[3]["warnings"].dump(),
              AllOf(HasSubstr("b beside a"), Not(HasSubstr("b alone"))));
  std::vector<std::int64_t> left;
  for (const v1::ShardPlanRequest& request : planner_.requests()) {
    if (request.memory().reserve_bytes() != 60000) continue;
    left.push_back(request.topology().hosts(0).host_memory_bytes());
  }
  EXPECT_THAT(left, Contains(2000 - 2 * 600)) << "of a group of 4, with two ranks on a host";
  EXPECT_THAT(left, Contains(2000 - 2 * 500));
}

TEST_F(GroupsByClassTest, HostMemoryThatIsAllTakenLeavesAValidTopology) {
  std::string limited = kEight;
  limited.replace(limited.find("host_memory"), 0, "max_host_memory_bytes_per_device: 1000, ");
  topologies_ = Write("limited.yaml", limited);
  unpooled_bytes_ = 50000;
  unpooled_bytes_beside_ = 35000;
  host_bytes_ = 1000;
  const auto rows = Rows();
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[3]["fullest_memory"]["total_bytes"], 95000);
}

TEST_F(GroupsByClassTest, PairsAfterThoseThatAreMadeAgainMayFit) {
  std::string sizes = kEight;
  sizes.replace(sizes.find("{sync_interval_batches: 2"), 26,
                "{sharding_group_sizes: [8, 4, 2, 1], sync_interval_batches: 1000000}");
  topologies_ = Write("sizes.yaml", sizes);
  unpooled_bytes_ = 50000;
  pooled_bytes_of_four_ = 40000;  // which cost 6 ms; 17 pairs of other groups cost 3 ms at most
  const auto rows = Rows();
  ASSERT_EQ(rows.size(), 7u);
  EXPECT_EQ(rows[6]["name"], "eight in groups of 4, EmbeddingCollection in contiguous groups of 4");
  EXPECT_EQ(rows[6]["fullest_memory"]["total_bytes"], 90000);
  EXPECT_EQ(planner_.calls(), 6 * 3 + 8 * 2);
}

TEST_F(GroupsByClassTest, ARankWithoutTablesMayHaveAReserveOfMoreThanItsDevice) {
  std::string small = kEight;
  small.replace(small.find("memory_bytes: 100000"), 20,
                "device_memory_bytes: [100000, 100000, 100000, 10]");
  topologies_ = Write("small.yaml", small);
  request_ = Write("reserve.yaml", std::string(kBothKinds) + "memory: {reserve_bytes: 20}\n");
  has_small_devices_ = true;
  auto rows = Rows();
  ASSERT_EQ(rows.size(), 3u) << "alternating groups differ in devices";
  EXPECT_EQ(rows[2]["name"], "eight in groups of 8, EmbeddingCollection in contiguous groups of 4");
  has_small_devices_ = false;
  EXPECT_EQ(Rows().size(), 2u) << "tables on such a rank do not fit";
}

TEST_F(GroupsByClassTest, NothingIsAskedByClassWhereThereIsNoRow) {
  has_rows_ = false;
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--what-if", topologies_}), 1);
  EXPECT_THAT(err_, HasSubstr("full"));
  EXPECT_EQ(planner_.calls(), 3);
}

TEST_F(GroupsByClassTest, AKindThatIsNotPlannedIsAWarning) {
  for (const auto code : {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::RESOURCE_EXHAUSTED}) {
    fault_of_b_ = grpc::Status(code, "not now");
    pooled_bytes_ = pooled_bytes_of_four_ = 60000;
    auto rows = Rows();
    ASSERT_EQ(rows.size(), 4u);
    EXPECT_THAT(rows[3]["warnings"].dump(), HasSubstr("were not all tried: not now"));
    pooled_bytes_ = pooled_bytes_of_four_ = 80000;
    rows = Rows();
    ASSERT_EQ(rows.size(), 3u) << "no pair fits";
    EXPECT_THAT(rows[0]["warnings"].dump() + rows[2]["warnings"].dump(),
                HasSubstr("were not all tried: not now"));
  }
  fault_of_b_ = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "no plan");
  pooled_bytes_ = pooled_bytes_of_four_ = 60000;
  EXPECT_THAT(Rows().dump(), Not(HasSubstr("were not all tried")));
}

TEST_F(GroupsByClassTest, WhereNoPairFitsThereIsNoRow) {
  unpooled_bytes_ = 50000;
  const auto rows = Rows();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["two_dimensional"]["fastest"], false);
  EXPECT_EQ(rows[2]["two_dimensional"]["fastest"], true);
}

TEST_F(GroupsByClassTest, PricesOfOtherModelsDoNotCompare) {
  model_of_b_ = "measured";
  EXPECT_EQ(Rows().size(), 3u);
}

TEST_F(GroupsByClassTest, OneSizeOrOneKindIsNotPlannedByClass) {
  request_ = Write("pooled.yaml", testing::kRequest);
  EXPECT_EQ(Rows().size(), 3u);
  EXPECT_EQ(planner_.calls(), 3);
  std::string one = kEight;
  one.replace(one.find("{sync_"), 1, "{sharding_group_sizes: [8], ");
  topologies_ = Write("one.yaml", one);
  request_ = Write("request.yaml", kBothKinds);
  EXPECT_EQ(Rows().size(), 1u);
  EXPECT_EQ(planner_.calls(), 4);
  request_ = Write("bound.yaml", std::string(kBothKinds) + "memory: {dense_bytes: 9}\n");
  EXPECT_THAT(Rows().dump(), Not(HasSubstr("were not"))) << "nothing else would be tried";
}

TEST_F(GroupsByClassTest, WhatBindsBothKindsIsSaid) {
  const std::vector<std::pair<std::string, std::string>> bound = {
      {"constraints: {max_shards_per_rank: 9}", "constraints.max_shards_per_rank"},
      {"constraints: {max_tables_per_rank: 9}", "constraints.max_tables_per_rank"},
      {"constraints: {colocate: [{tables: [a, b]}]}", "constraints.colocate"},
      {"constraints: {separate: [{tables: [a, b]}]}", "constraints.separate"},
      {"migration: {previous: {world_size: 1}}", "migration"},
      {"search: {goals: [{measure: cost}, {measure: max_memory}]}", "search.goals"},
      {"search: {objective: mean_of_max}", "search.objective mean_of_max"},
      {"memory: {dense_bytes: 9}", "memory.dense_bytes"},
  };
  for (const auto& [text, field] : bound) {
    request_ = Write("bound.yaml", std::string(kBothKinds) + text + "\n");
    const auto rows = Rows();
    ASSERT_EQ(rows.size(), 3u) << field;
    EXPECT_THAT(rows[0]["warnings"].dump() + rows[2]["warnings"].dump(),
                HasSubstr("were not tried: " + field + " is of both kinds"));
  }
  EXPECT_EQ(planner_.calls(), static_cast<int>(3 * bound.size()));
}

TEST(OfKindTest, LeavesWhatIsDemandedOfItsOwnTables) {
  v1::ShardPlanRequest request;
  for (const std::string kind : {"", "embedding", "embedding_bag", "embedding"}) {
    v1::Table& table = *request.add_tables();
    table.set_name("t" + std::to_string(request.tables_size()));
    table.set_module("m");
    table.set_kind(kind);
  }
  v1::Constraints& constraints = *request.mutable_constraints();
  constraints.set_max_shards_per_table(3);
  constraints.add_tables()->add_tables("t1");
  v1::TableRule& mixed = *constraints.add_tables();
  for (const char* name : {"m.t1", "m.t2", "t3", "unknown"}) mixed.add_tables(name);
  for (const char* name : {"t2", "t4"}) {
    if (constraints.colocate_size() == 0) constraints.add_colocate();
    constraints.mutable_colocate(0)->add_tables(name);
  }
  EXPECT_TRUE(HasBothKinds(request));
  EXPECT_EQ(WhyNotApart(request), "");
  const v1::ShardPlanRequest pooled = OfKind(TableKind::kEmbeddingBag, request);
  const v1::ShardPlanRequest unpooled = OfKind(TableKind::kEmbedding, request);
  EXPECT_FALSE(HasBothKinds(pooled));
  ASSERT_EQ(pooled.tables_size(), 2);
  EXPECT_EQ(pooled.tables(1).name(), "t3");
  ASSERT_EQ(pooled.constraints().tables_size(), 2);
  EXPECT_THAT(pooled.constraints().tables(1).tables(), ElementsAre("m.t1", "t3", "unknown"));
  EXPECT_EQ(pooled.constraints().colocate_size(), 0);
  EXPECT_EQ(pooled.constraints().max_shards_per_table(), 3);
  ASSERT_EQ(unpooled.constraints().tables_size(), 1);
  EXPECT_THAT(unpooled.constraints().tables(0).tables(), ElementsAre("m.t2", "unknown"));
  ASSERT_EQ(unpooled.constraints().colocate_size(), 1);
  EXPECT_THAT(unpooled.constraints().colocate(0).tables(), ElementsAre("t2", "t4"));
}

}  // namespace
}  // namespace neuroshard
