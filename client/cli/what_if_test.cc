#include "client/cli/what_if.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/cli/testing/command_line_fixture.h"
#include "common/base/random.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using testing::CommandLineTest;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kTopologies[] = R"(
topologies:
- name: two
  topology: {hosts: [{num_devices: 2, memory_bytes: 100000}]}
  price_per_device_hour: 3.6
- name: eight
  topology: {hosts: [{count: 2, num_devices: 4, memory_bytes: 100000}]}
  batch_size_per_device: 32
  price_per_device_hour: 7.2
- name: free
  topology: {hosts: [{device: a100-sxm-80gb, num_devices: 4}]}
  cost_model: {name: analytic}
- name: none
  topology: {hosts: [{num_devices: 1, memory_bytes: 10}]}
)";

class WhatIfTest : public CommandLineTest {
 protected:
  WhatIfTest() {
    topologies_ = Write("topologies.yaml", kTopologies);
    // The cost is the batch / (8 x devices) ms.
    planner_.plan = [](const v1::ShardPlanRequest& request, v1::ShardPlanResponse* response) {
      if (request.topology().hosts(0).memory_bytes() == 10) {
        return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "90 bytes short");
      }
      std::int64_t devices = 0;
      for (const auto& group : request.topology().hosts()) {
        devices += (group.has_count() ? group.count() : 1) * group.num_devices();
      }
      v1::PlanCost& cost = *response->mutable_cost();
      cost.set_embedding_cost_ms(static_cast<double>(request.global_batch_size()) /
                                 static_cast<double>(8 * devices));
      for (int rank = 0; rank < devices; ++rank) {
        v1::RankCost& of_rank = *cost.add_ranks();
        of_rank.set_rank(rank);
        of_rank.mutable_memory()->set_total_bytes(rank == 1 ? 512 : 256);
        of_rank.mutable_memory()->set_capacity_bytes(1024);
      }
      response->mutable_lower_bound()->set_kind("certified");
      response->mutable_lower_bound()->set_gap_percent(2.5);
      response->mutable_price_basis()->set_kind("published");
      response->mutable_price_basis()->set_text("priced by figures");
      response->mutable_cost_model()->set_name("analytic");
      return grpc::Status::OK;
    };
  }

  int Ask(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"plan",      request_,   "--planner", planner_.address(),
                                          "--what-if", topologies_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(std::move(arguments));
  }

  std::string topologies_;
};

TEST_F(WhatIfTest, EachTopologyIsARow) {
  ASSERT_EQ(Ask({"--seed", "7"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("topology  devices  cost_ms  samples/s  max_memory  over_bound  "
                              "basis      price/M_samples\n"
                              "two             2    4.000     16.0 k         50%        2.5%  "
                              "published            0.125  *\n"
                              "eight           8    4.000     64.0 k         50%        2.5%  "
                              "published             0.25  *\n"
                              "free            4    2.000     32.0 k         50%        2.5%  "
                              "published                -\n"
                              "none            1        -          -           -           -  no "
                              "plan                  -\n"));
  EXPECT_THAT(out_, AllOf(HasSubstr("none: 90 bytes short\n"),
                          HasSubstr("two, eight, free: priced by figures")));
  for (const v1::ShardPlanRequest& request : planner_.requests()) {
    EXPECT_EQ(request.search().seed(), 7u);
    EXPECT_EQ(request.tables_size(), 2);
    if (!request.topology().hosts(0).device().empty()) {
      EXPECT_EQ(request.cost_model().name(), "analytic");
    }
  }
  EXPECT_EQ(planner_.requests().size(), 4u);
}

TEST_F(WhatIfTest, SaysWhatItsColumnsAreAndWhySeveralHostsLookSlow) {
  ASSERT_EQ(Ask(), 0) << err_;
  std::string text = out_;
  for (std::size_t at; (at = text.find("\n  ")) != std::string::npos;) text.replace(at, 3, " ");
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("max_memory is that of the fullest rank; over_bound is how far the plan "
                      "is above the least that any plan can cost"),
            HasSubstr("what one model priced does not compare with what another did, --model "
                      "analytic prices all alike"),
            HasSubstr("*: every topology here that is faster costs more a sample, and every "
                      "one that costs less is slower"),
            HasSubstr(
                "eight: warning: on more than one host, TorchRec's formulas send all that ranks "
                "exchange with all others at the rate between hosts")));
}

TEST_F(WhatIfTest, WideHasBatchesAndBytes) {
  ASSERT_EQ(Ask({"--wide"}), 0) << err_;
  EXPECT_THAT(out_,
              AllOf(HasSubstr("topology  devices  batch  cost_ms"),
                    HasSubstr("eight           8    256    4.000     64.0 k  512 B of 1.00 KiB")));
}

TEST_F(WhatIfTest, AsJson) {
  ASSERT_EQ(Ask({"--format", "json"}), 0) << err_;
  const auto rows = nlohmann::json::parse(out_)["rows"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[1]["hosts"], 2);
  EXPECT_EQ(rows[1]["global_batch_size"], 256);
  EXPECT_EQ(rows[1]["samples_per_second"], 64e3);
  EXPECT_EQ(rows[1]["fullest_rank"], 1);
  // 8 x 7.2 an hour is 0.016 a second, for 64,000 samples.
  EXPECT_NEAR(rows[1]["price_per_million_samples"], 0.25, 1e-12);
  EXPECT_EQ(rows[0]["pareto"], true);
  EXPECT_FALSE(rows[2].contains("pareto"));
  EXPECT_THAT(rows[3]["failure"], HasSubstr("90 bytes short"));
  EXPECT_FALSE(rows[3].contains("price_per_million_samples"));
}

TEST_F(WhatIfTest, AllFaultsOfTheFileAtOnce) {
  topologies_ = Write("faulty.yaml", R"(
topologies:
- name: a
  topology: {hosts: [{num_devices: 0, memory_bytes: 1}]}
  price_per_device_hour: -1
- name: a
  topology: {hosts: [{num_devices: 2, device: h1000}]}
  global_batch_size: 64
  batch_size_per_device: 8
- topology: {hosts: [{num_devices: 4, memory_bytes: 80GiB}]}
  batch_size_per_device: 1_000_000_000
  gpus: 4
)");
  EXPECT_EQ(Ask(), 1);
  EXPECT_THAT(
      err_,
      AllOf(HasSubstr("faulty.yaml: topologies[0].topology.hosts[0].num_devices: "),
            HasSubstr("topologies[0].price_per_device_hour: "), HasSubstr("topologies[1].name: "),
            HasSubstr("topologies[1].topology.hosts[0].device: "),
            HasSubstr("topologies[1].batch_size_per_device: must not be given beside"),
            HasSubstr("topologies[2].name: "), HasSubstr("topologies[2].batch_size_per_device: "),
            HasSubstr("topologies[2].gpus: unknown field")));
  EXPECT_THAT(out_, IsEmpty());
  EXPECT_EQ(planner_.calls(), 0);
}

// Own plans cost 4 and 8 ms.
constexpr char kOnePlan[] = R"(
one_plan: true
topologies:
- name: a
  topology: {hosts: [{num_devices: 2, memory_bytes: 100000}]}
  global_batch_size: 64
- name: b
  topology: {hosts: [{num_devices: 2, memory_bytes: 100000}]}
  global_batch_size: 128
)";

TEST_F(WhatIfTest, OnePlanIsTheOneThatIsNowhereMuchDearer) {
  topologies_ = Write("cards.yaml", kOnePlan);
  planner_.evaluation.set_legal(true);
  planner_.evaluation.mutable_cost()->set_embedding_cost_ms(10);  // a on b 1.25, b on a 2.5
  ASSERT_EQ(Ask({"--format", "json"}), 0) << err_;
  const auto answer = nlohmann::json::parse(out_);
  EXPECT_EQ(answer["one_plan"]["made_for"], "a");
  EXPECT_EQ(answer["one_plan"]["worst_ratio"], 1.25);
  EXPECT_EQ(answer["rows"][0]["one_plan_cost_ms"], 4);
  EXPECT_EQ(answer["rows"][1]["one_plan_cost_ms"], 10);
  ASSERT_EQ(Ask(), 0) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("topology  devices  cost_ms  one_plan"),
                          HasSubstr("made for a costs, which is at most 1.250 times")));
}

TEST_F(WhatIfTest, WhereNoPlanIsLegalForAllThereIsNoOnePlan) {
  topologies_ = Write("cards.yaml", kOnePlan);
  planner_.evaluation.set_legal(false);
  planner_.evaluation.mutable_cost()->set_embedding_cost_ms(1);
  ASSERT_EQ(Ask({"--format", "json"}), 0) << err_;
  const auto answer = nlohmann::json::parse(out_);
  EXPECT_EQ(answer["one_plan"]["failure"],
            "no plan that was made for one of the topologies is legal for all others");
  EXPECT_FALSE(answer["rows"][0].contains("one_plan_cost_ms"));
  topologies_ = Write("cards.yaml", std::string(kOnePlan) + R"(
- name: c
  topology: {hosts: [{num_devices: 1, memory_bytes: 10}, {num_devices: 1, memory_bytes: 10}]}
)");
  ASSERT_EQ(Ask(), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("there is no one plan for all: c has no plan"));
}

TEST_F(WhatIfTest, OnePlanIsForEquallyManyDevicesWithoutGroups) {
  topologies_ = Write("cards.yaml", std::string(kOnePlan) + R"(
- name: c
  topology: {hosts: [{num_devices: 4, memory_bytes: 100000}]}
  two_dimensional: {}
)");
  EXPECT_EQ(Ask(), 1);
  EXPECT_THAT(err_, AllOf(HasSubstr("topologies[2].topology: has 4 devices, topologies[0] has 2"),
                          HasSubstr("topologies[2].two_dimensional: must not be given beside")));
  EXPECT_EQ(planner_.calls(), 0);
}

TEST_F(WhatIfTest, AnEmptyListAndFilesThatAreSomethingElse) {
  topologies_ = Write("empty.yaml", "topologies: []\n");
  EXPECT_EQ(Ask(), 1);
  EXPECT_THAT(err_, HasSubstr("topologies: must have 1 to 1000 entries, got 0"));
  topologies_ = request_;
  EXPECT_EQ(Ask(), 1);
  EXPECT_THAT(err_, HasSubstr("this is a request; a list of topologies is wanted here"));
  EXPECT_EQ(Run({"plan", Write("t.yaml", kTopologies), "--planner", planner_.address()}), 1);
  EXPECT_THAT(err_, HasSubstr("this is a list of topologies for `neuroshard plan --what-if`"));
}

TEST_F(WhatIfTest, WhatIsSaidOfAllAlikeFailsTheCommand) {
  planner_.plan = [](const v1::ShardPlanRequest&, v1::ShardPlanResponse*) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "tables[0].pooling_factor: is wrong");
  };
  EXPECT_EQ(Ask(), 1);
  EXPECT_THAT(out_, IsEmpty());
  EXPECT_THAT(err_, HasSubstr("tables[0].pooling_factor"));
}

TEST_F(WhatIfTest, APlannerThatGoesAwayFailsTheCommand) {
  auto plan = planner_.plan;
  planner_.plan = [plan](const v1::ShardPlanRequest& request, v1::ShardPlanResponse* response) {
    if (request.has_cost_model()) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
    return plan(request, response);
  };
  EXPECT_EQ(Ask({"--timeout-s", "20"}), 1);
  EXPECT_THAT(out_, IsEmpty());
  EXPECT_THAT(err_, HasSubstr("gone"));
}

constexpr char kGroups[] = R"(
topologies:
- name: eight
  topology:
    hosts: [{count: 2, num_devices: 4, memory_bytes: 100000, host_memory_bytes: 4000}]
    bandwidths: {intra_host_bytes_per_s: 4e6, inter_host_bytes_per_s: 1e6}
  price_per_device_hour: 3.6
  two_dimensional: {sync_interval_batches: 2}
)";

TEST_F(WhatIfTest, BatchesOfFeaturesKeepTheirShare) {
  request_ = Write("features.yaml", R"(
tables:
- {name: a, num_embeddings: 100, embedding_dim: 8, zipf_exponent: 1, features: [f, g], pooling_factors: [2, 1],
   feature_batch_sizes: [32, 1]}
topology: {hosts: [{num_devices: 2, memory_bytes: 100000}]}
global_batch_size: 64
)");
  topologies_ = Write("batches.yaml", R"(
topologies:
- {name: more, topology: {hosts: [{num_devices: 2, memory_bytes: 100000}]}, global_batch_size: 256}
- {name: less, topology: {hosts: [{num_devices: 2, memory_bytes: 100000}]}, global_batch_size: 16}
)");
  ASSERT_EQ(Ask(), 0) << err_;
  std::map<std::int64_t, std::vector<std::int64_t>> sizes;
  for (const v1::ShardPlanRequest& asked : planner_.requests()) {
    const auto& of = asked.tables(0).feature_batch_sizes();
    sizes[asked.global_batch_size()].assign(of.begin(), of.end());
  }
  EXPECT_THAT(sizes[256], ::testing::ElementsAre(128, 4));
  EXPECT_THAT(sizes[16], ::testing::ElementsAre(8, 1)) << "a batch has a sample";
}

class WhatIfGroupsTest : public WhatIfTest {
 protected:
  // Groups of 4 with tables of 3200 bytes each on ranks 0 and 1: 1 ms for each device, 3 ms for 8.
  WhatIfGroupsTest() {
    topologies_ = Write("groups.yaml", kGroups);
    planner_.plan = [plan = planner_.plan](const v1::ShardPlanRequest& request,
                                           v1::ShardPlanResponse* response) {
      const grpc::Status status = plan(request, response);
      const bool whole = request.global_batch_size() == 64;
      response->mutable_cost()->set_embedding_cost_ms(whole ? 3 : 1);
      response->mutable_plan()->set_world_size(whole ? 8 : 4);
      for (int t = 0; t < request.tables_size(); ++t) {
        v1::TablePlan& table = *response->mutable_plan()->add_tables();
        table.set_name(request.tables(t).name());
        table.set_sharding_type("table_wise");
        table.set_compute_kernel("fused");
        v1::Shard& shard = *table.add_shards();
        shard.set_rows(request.tables(t).num_embeddings());
        shard.set_cols(request.tables(t).embedding_dim());
        shard.set_rank(t);
      }
      return status;
    };
  }

  void Say(const std::string& two_dimensional) {
    std::string text = kGroups;
    const std::string said = "{sync_interval_batches: 2}";
    text.replace(text.find(said), said.size(), two_dimensional);
    topologies_ = Write("groups.yaml", text);
  }
};

TEST_F(WhatIfGroupsTest, EachSizeOfAGroupIsARowAndPaysForItsSync) {
  ASSERT_EQ(Ask(), 0) << err_;
  // Two replicas exchange 3200 bytes each: 0.8 ms on a host and 3.2 ms between hosts, half a batch.
  EXPECT_THAT(out_, HasSubstr("topology                         devices  cost_ms  sync_ms  "
                              "samples/s  max_memory  over_bound  basis      price/M_samples\n"
                              "eight in groups of 4                   8    1.000    0.400     45.7 "
                              "k         50%        2.5%  published            0.175  *\n"
                              "eight in contiguous groups of 4        8    1.000    1.600     24.6 "
                              "k         50%        2.5%  published            0.325\n"
                              "eight in groups of 8                   8    3.000        -     21.3 "
                              "k         50%        2.5%  published            0.375\n"));
  EXPECT_THAT(out_, HasSubstr("eight in groups of 4: fastest groups of this topology\n"));
}

TEST_F(WhatIfGroupsTest, ARequestIsOfOneGroup) {
  ASSERT_EQ(Ask(), 0) << err_;
  std::map<int, int> hosts_by_devices;
  for (const v1::ShardPlanRequest& request : planner_.requests()) {
    const v1::HostGroup& group = request.topology().hosts(0);
    ASSERT_EQ(request.topology().hosts_size(), 1);
    const int devices = group.count() * group.num_devices();
    EXPECT_EQ(request.global_batch_size(), 8 * devices);
    EXPECT_EQ(group.memory_bytes(), 100000);
    EXPECT_EQ(group.host_memory_bytes(), 1000 * group.num_devices());
    EXPECT_EQ(request.topology().bandwidths().inter_host_bytes_per_s(), 1e6);
    hosts_by_devices[devices] += group.count();
  }
  EXPECT_EQ(hosts_by_devices, (std::map<int, int>{{4, 2 + 1}, {8, 2}}));
}

TEST_F(WhatIfGroupsTest, ABatchThatDoesNotDivideIsSaid) {
  Say("{sharding_group_sizes: [4, 8], use_inter_host_allreduce: true}\n  global_batch_size: 65");
  ASSERT_EQ(Ask(), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("the batch of 65 does not divide into 2\n  groups: plans"));
  EXPECT_THAT(out_, Not(HasSubstr("into 1")));
}

// 6 hosts of 2 devices in pods of 2 hosts: a consecutive group of 6 ranks has 3 hosts, one and a
// half pods.
TEST_F(WhatIfGroupsTest, GroupsThatPodsDoNotTileAreSaid) {
  topologies_ = Write("groups.yaml", R"(topologies:
- {name: pods, topology: {hosts: [{count: 6, num_devices: 2, memory_bytes: 10000}], pod_size: 2}, two_dimensional: {sharding_group_sizes: [6]}}
)");
  ASSERT_EQ(Ask({"--format", "json"}), 0) << err_;
  const auto rows = nlohmann::json::parse(out_)["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["name"], "pods in groups of 6");
  EXPECT_EQ(rows[0].value("failure", ""), "");
  EXPECT_EQ(rows[1]["name"], "pods in contiguous groups of 6");
  EXPECT_THAT(rows[1]["failure"].get<std::string>(),
              HasSubstr("pods of 2 hosts do not tile a group of 6 ranks"));
}

TEST_F(WhatIfGroupsTest, AsJson) {
  Say("{sharding_group_sizes: [8, 2], use_inter_host_allreduce: true}");
  ASSERT_EQ(Ask({"--format", "json"}), 0) << err_;
  const auto rows = nlohmann::json::parse(out_)["rows"];
  ASSERT_EQ(rows.size(), 2u);
  const auto& whole = rows[0]["two_dimensional"];
  EXPECT_EQ(whole["replicas"], 1);
  EXPECT_EQ(whole["sync_ms"], 0);
  EXPECT_EQ(whole["fastest"], true);
  const auto& cut = rows[1]["two_dimensional"];
  EXPECT_EQ(cut["sharding_group_size"], 2);
  EXPECT_EQ(cut["use_inter_host_allreduce"], true);
  EXPECT_EQ(cut["node_group_size"], 2);
  EXPECT_EQ(cut["replicas"], 4);
  EXPECT_EQ(cut["sync_interval_batches"], 1);
  EXPECT_EQ(cut["sync_bytes"], 3200);
  // Two of the four on each host: rings through both adapters.
  EXPECT_NEAR(cut["sync_ms"], 2 * 3.2 * 3 / 4 / 2, 1e-9);
  EXPECT_EQ(rows[1]["global_batch_size"], 64);
  EXPECT_NEAR(rows[1]["samples_per_second"], 64e3 / (1 + 2.4), 1e-6);
  EXPECT_EQ(cut["fastest"], false);
  EXPECT_EQ(whole["plan"]["world_size"], 8) << "of the fastest row";
  EXPECT_FALSE(cut.contains("plan"));
}

TEST_F(WhatIfGroupsTest, FaultsOfGroups) {
  Say("{sharding_group_sizes: [0, 3, 4, 4, 16], sync_interval_batches: 0}");
  EXPECT_EQ(Ask(), 1);
  EXPECT_THAT(
      err_,
      AllOf(HasSubstr("topologies[0].two_dimensional.sharding_group_sizes[0]: "),
            HasSubstr("sharding_group_sizes[1]: a group's size must divide the 8 ranks, got 3"),
            Not(HasSubstr("sharding_group_sizes[2]")),
            HasSubstr("sharding_group_sizes[3]: must not be twice in the list"),
            HasSubstr("sharding_group_sizes[4]: "),
            HasSubstr("topologies[0].two_dimensional.sync_interval_batches: ")));
  EXPECT_EQ(planner_.calls(), 0);
}

TEST_F(WhatIfGroupsTest, RowsAreLimited) {
  std::string text = "topologies:\n";
  for (int i = 0; i < 400; ++i) {
    text += "- {name: t" + std::to_string(i) +
            ", topology: {hosts: [{count: 2, num_devices: 4, memory_bytes: 1000}]}, "
            "two_dimensional: {}}\n";
  }
  topologies_ = Write("many.yaml", text);
  EXPECT_EQ(Ask(), 1);
  EXPECT_THAT(err_, HasSubstr("topologies: are 1200 rows with the sizes of groups, at most 1000"));
}

TEST_F(WhatIfGroupsTest, SaysWhatTorchRecDoesOtherwise) {
  request_ = Write("request.yaml", std::string(testing::kRequest) + "optimizer: adam\n");
  ASSERT_EQ(Ask(), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("with\n  adam it fails when it is made"));
}

TEST_F(WhatIfTest, FormatsOfOnePlanAndCommandsOfOnePlanAreUsageErrors) {
  EXPECT_EQ(Ask({"--format", "torchrec"}), 2);
  EXPECT_EQ(Ask({"--stream"}), 2);
  EXPECT_EQ(Ask({"--compare", "random"}), 2);
  EXPECT_EQ(planner_.calls(), 0);
}

TEST(MarkParetoTest, IsTheFrontOfRowsInTheOrderOfSpeed) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    v1::WhatIfAnswer answer;
    std::vector<std::pair<double, double>> points;  // speed, price
    for (int i = 0; i < static_cast<int>(random.Between(1, 12)); ++i) {
      v1::WhatIfRow& row = *answer.add_rows();
      row.set_samples_per_second(static_cast<double>(random.Between(1, 5)));
      if (random.Below(5) == 0) continue;
      row.set_price_per_million_samples(static_cast<double>(random.Between(1, 5)));
      points.emplace_back(row.samples_per_second(), row.price_per_million_samples());
    }
    MarkPareto(answer);
    // Fastest first, of those the cheapest first: a row is on the front if it is cheaper than all
    // faster ones, and as cheap as any that is as fast.
    std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) {
      return a.first > b.first || (a.first == b.first && a.second < b.second);
    });
    std::map<std::pair<double, double>, bool> on_front;
    double speed = 0;
    double cheapest = 1e9;
    bool front = false;
    for (const auto& point : points) {
      if (point.first != speed) front = point.second < cheapest;
      const bool as_cheap = point.first != speed || point.second == cheapest;
      on_front[point] = front && as_cheap;
      cheapest = std::min(cheapest, point.second);
      speed = point.first;
    }
    for (const v1::WhatIfRow& row : answer.rows()) {
      ASSERT_EQ(row.has_pareto(), row.has_price_per_million_samples());
      if (!row.has_pareto()) continue;
      ASSERT_EQ(row.pareto(),
                (on_front[{row.samples_per_second(), row.price_per_million_samples()}]))
          << row.ShortDebugString();
    }
  }
}

}  // namespace
}  // namespace neuroshard
