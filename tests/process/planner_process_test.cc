// The planner and the command line as a launcher meets them: real binaries, real sockets, real
// signals.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/client_unary_call.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "server/networks/testing/model_fixture.h"
#include "tests/process/servers.h"
#include "tests/process/subprocess.h"
#include "tests/process/temp_dir.h"
#include "tests/support/http_get.h"

namespace neuroshard {
namespace {

using ::testing::HasSubstr;

using Json = nlohmann::json;

// Only turns a hang into a failure.
constexpr std::chrono::seconds kPatience{120};

constexpr char kRequest[] = R"(
tables:
  - {name: users, num_embeddings: 100000, embedding_dim: 64, pooling_factor: 3}
  - {name: items, num_embeddings: 500000, embedding_dim: 32, pooling_factor: 20}
  - {name: countries, num_embeddings: 200, embedding_dim: 16, pooling_factor: 1}
  - {name: queries, num_embeddings: 1000000, embedding_dim: 128, pooling_factor: 8}
topology:
  compute_device: cpu
  hosts: [{num_devices: 2, memory_bytes: 4294967296}]
global_batch_size: 4096
)";

class PlannerProcessTest : public ::testing::Test {
 protected:
  void SetUp() override { WriteModel("models", 1); }

  void WriteModel(const std::string& root, int version) {
    ModelFixtureOptions options;
    options.version = version;
    const auto written = WriteModelFixture(dir_.Path(root), options);
    ASSERT_TRUE(written.ok()) << written.status();
  }

  ProcessResult Cli(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), Binary("neuroshard"));
    return RunProcess(arguments);
  }

  TempDir dir_;
};

TEST_F(PlannerProcessTest, PlansAndEvaluatesOverTheWire) {
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  const std::string request = dir_.Write("request.yaml", kRequest);
  const std::string plan = dir_.Path("plan.json");

  const ProcessResult planned =
      Cli({"plan", request, "--planner", planner.address(), "--format", "json", "--out", plan});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Json response = Json::parse(std::ifstream(plan));
  EXPECT_EQ(response["plan"]["tables"].size(), 4U);
  EXPECT_GT(response["cost"]["embedding_cost_ms"].get<double>(), 0.0);

  const ProcessResult evaluated =
      Cli({"evaluate", request, plan, "--planner", planner.address(), "--format", "json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  const Json evaluation = Json::parse(evaluated.out);
  EXPECT_TRUE(evaluation["legal"].get<bool>());
  EXPECT_NEAR(evaluation["cost"]["embedding_cost_ms"].get<double>(),
              response["cost"]["embedding_cost_ms"].get<double>(), 1e-4);
  EXPECT_EQ(planner.Stop(), 0);
}

TEST_F(PlannerProcessTest, SameRequestSamePlanOnAnyReplica) {
  ServerProcess first = StartPlanner(dir_.Path("models"));
  ServerProcess second = StartPlanner(dir_.Path("models"));
  const std::string request =
      dir_.Write("request.yaml", std::string(kRequest) + "search: {refine_steps: 50}\n");

  const auto plan = [&](const std::string& address) {
    const ProcessResult result =
        Cli({"plan", request, "--planner", address, "--format", "torchrec"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };

  EXPECT_EQ(plan(first.address()), plan(second.address()));
}

// One plan for two cards, of which one has less memory: legal on both, and its worst ratio to their
// own plans is what it says and no worse than that of either own plan.
TEST_F(PlannerProcessTest, OnePlanIsLegalEverywhereAndNoOwnPlanIsBetter) {
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  Random random(5);
  int better = 0;
  for (int i = 0; i < 4; ++i) {
    std::string tables = "search: {effort: quick}\nglobal_batch_size: 16384\ntables:\n";
    std::int64_t bytes = 0;
    for (int t = 0; t < 12; ++t) {
      const auto rows = static_cast<std::int64_t>(10'000 + random.Below(1'000'000));
      const auto columns = static_cast<std::int64_t>(16 << random.Below(4));
      tables += fmt::format(
          "- {{name: t{}, num_embeddings: {}, embedding_dim: {}, pooling_factor: {}}}\n", t, rows,
          columns, 1 + random.Below(30));
      bytes += rows * columns * 4;
    }
    // The smaller is full.
    const std::vector<std::string> cards = {
        fmt::format("{{hosts: [{{num_devices: 4, device: a100-sxm-40gb, memory_bytes: {}}}]}}",
                    bytes / 3),
        "{hosts: [{num_devices: 4, device: h100-sxm}]}"};
    std::string what_if = "one_plan: true\ntopologies:\n";
    std::vector<std::string> requests, plans;
    for (std::size_t c = 0; c < cards.size(); ++c) {
      what_if += fmt::format("- {{name: card{}, topology: {}}}\n", c, cards[c]);
      requests.push_back(dir_.Write(fmt::format("card{}.yaml", c),
                                    tables + fmt::format("topology: {}\n", cards[c])));
      plans.push_back(dir_.Path(fmt::format("plan{}.json", c)));
      ASSERT_EQ(Cli({"plan", requests[c], "--planner", planner.address(), "--format", "json",
                     "--out", plans[c]})
                    .exit_code,
                0);
    }
    const ProcessResult asked =
        Cli({"plan", requests[0], "--what-if", dir_.Write("cards.yaml", what_if), "--planner",
             planner.address(), "--format", "json"});
    ASSERT_EQ(asked.exit_code, 0) << asked.err;
    const Json answer = Json::parse(asked.out);
    const Json& one = answer["one_plan"];
    ASSERT_EQ(one["failure"], "");
    const auto worst_ratio = [&](const std::string& plan) {
      double worst = 0;
      for (std::size_t c = 0; c < cards.size(); ++c) {
        const ProcessResult evaluated = Cli(
            {"evaluate", requests[c], plan, "--planner", planner.address(), "--format", "json"});
        const Json evaluation = Json::parse(evaluated.out);
        const bool is_legal = evaluation.value("legal", false);
        const double own_ms = answer["rows"][c]["embedding_cost_ms"].get<double>();
        worst = std::max(worst, is_legal
                                    ? evaluation["cost"]["embedding_cost_ms"].get<double>() / own_ms
                                    : std::numeric_limits<double>::infinity());
      }
      return worst;
    };
    const double worst = worst_ratio(dir_.Write("one.json", one["plan"].dump()));
    EXPECT_NEAR(worst, one["worst_ratio"].get<double>(), 1e-6);
    const double of_own = std::min(worst_ratio(plans[0]), worst_ratio(plans[1]));
    EXPECT_LE(worst, of_own * (1 + 1e-9));
    if (worst < of_own) ++better;
  }
  EXPECT_GT(better, 0);
}

TEST_F(PlannerProcessTest, BadInputNamesTheFieldAndTheServiceGoesOn) {
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  const auto plan = [&](const std::string& text) {
    return Cli({"plan", dir_.Write("bad.yaml", text), "--planner", planner.address()});
  };

  const ProcessResult negative = plan(
      "tables: [{name: a, num_embeddings: 0, embedding_dim: -4}, {name: a, num_embeddings: 5, "
      "embedding_dim: 8, pooling_factor: .nan}]\ntopology: {hosts: []}\n");
  EXPECT_EQ(negative.exit_code, 1);
  EXPECT_THAT(negative.err, HasSubstr("tables[0].embedding_dim"));
  EXPECT_THAT(negative.err, HasSubstr("tables[0].num_embeddings"));
  EXPECT_THAT(negative.err, HasSubstr("tables[1].pooling_factor"));
  EXPECT_THAT(negative.err, HasSubstr("tables[1].name"));
  EXPECT_THAT(negative.err, HasSubstr("topology.hosts"));

  const ProcessResult unknown = plan("tabels: []\ntopology: {hosts: [{num_device: 2}]}\n");
  EXPECT_NE(unknown.exit_code, 0);
  EXPECT_THAT(unknown.err, HasSubstr("tabels"));
  EXPECT_THAT(unknown.err, HasSubstr("topology.hosts[0].num_device"));

  const ProcessResult malformed = plan("tables: [}\n");
  EXPECT_NE(malformed.exit_code, 0);
  EXPECT_THAT(malformed.err, HasSubstr("line 1"));

  const ProcessResult strategy = Cli({"plan", dir_.Write("request.yaml", kRequest), "--strategy",
                                      "best", "--planner", planner.address()});
  EXPECT_EQ(strategy.exit_code, 2);
  EXPECT_THAT(strategy.err, HasSubstr("neuroshard"));  // the known ones are listed

  const ProcessResult model =
      Cli({"plan", dir_.Path("request.yaml"), "--model", "h900", "--planner", planner.address()});
  EXPECT_EQ(model.exit_code, 1);
  EXPECT_THAT(model.err, HasSubstr("fixture"));

  const ProcessResult good =
      Cli({"plan", dir_.Path("request.yaml"), "--planner", planner.address()});
  EXPECT_EQ(good.exit_code, 0) << good.err;
}

TEST_F(PlannerProcessTest, WithoutAnyModelTheBuiltInOnePlansAndSaysSo) {
  std::filesystem::create_directories(dir_.Path("empty"));
  ServerProcess planner = StartPlanner(dir_.Path("empty"));
  const std::string request = dir_.Write("request.yaml", kRequest);

  const ProcessResult plan =
      Cli({"plan", request, "--planner", planner.address(), "--format", "json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const Json response = Json::parse(plan.out);
  EXPECT_EQ(response["cost_model"]["name"], "analytic");
  EXPECT_EQ(response["cost_model"]["version"], 1);
  EXPECT_EQ(response["price_basis"]["kind"], "published");
  EXPECT_THAT(response["price_basis"]["text"], HasSubstr("nothing was measured"));
  EXPECT_THAT(plan.err,
              HasSubstr("prices rest on TorchRec's formulas with their default bandwidths"));

  const ProcessResult shown = Cli({"models", "show", "analytic", "--planner", planner.address()});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("TorchRec 1.9.2"));
  EXPECT_EQ(Cli({"plan", request, "--model", "h900", "--planner", planner.address()}).exit_code, 1);
}

// Somebody with GPUs and no measurements: their device by name, what the plan is better than, and
// what another plan would change.
TEST_F(PlannerProcessTest, DevicesGoByNameAndPlansAreComparedOnTheirFigures) {
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  const ProcessResult devices = Cli({"devices", "--planner", planner.address()});
  EXPECT_EQ(devices.exit_code, 0) << devices.err;
  EXPECT_THAT(devices.out, HasSubstr("\nh100-sxm "));

  std::string text = kRequest;
  text.replace(text.find("{num_devices: 2, memory_bytes: 4294967296}"), 42,
               "{device: h100-sxm, count: 2, num_devices: 1}");
  const std::string request = dir_.Write("gpus.yaml", text +
                                                          "constraints: {tables: [{tables: "
                                                          "[users], ranks: [1]}]}\n");
  const std::string plan = dir_.Path("plan.json");
  const ProcessResult planned =
      Cli({"plan", request, "--planner", planner.address(), "--format", "json", "--out", plan,
           "--compare", "refine,size_greedy,random"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.err, HasSubstr("prices rest on published figures of h100-sxm (3350 GB/s"));
  EXPECT_THAT(planned.err, HasSubstr("no cost model here was measured on"));
  const ProcessResult table =
      Cli({"plan", request, "--planner", planner.address(), "--compare", "size_greedy"});
  EXPECT_TRUE(table.out.starts_with("prices rest on published figures")) << table.out;

  const Json answer = Json::parse(std::ifstream(plan));
  EXPECT_EQ(answer["cost_model"]["name"], "analytic")
      << "the model in the root is of something else";
  EXPECT_EQ(answer["cost"]["ranks"][0]["memory"]["capacity_bytes"], 80'000'000'000);
  ASSERT_EQ(answer["comparison"].size(), 3U);
  EXPECT_EQ(answer["comparison"][0]["cost_ratio"], 1.0) << "the same strategy and seed";
  EXPECT_EQ(answer["comparison"][0]["legal"], true);
  EXPECT_EQ(answer["comparison"][1]["without_constraints"], true);
  EXPECT_GE(answer["comparison"][1]["cost_ratio"].get<double>(), 1.0);

  // By name the measured model prices it, and the answer says of what it is.
  const ProcessResult measured =
      Cli({"plan", request, "--model", "fixture", "--planner", planner.address(), "--format",
           "json", "--strategy", "refine"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_THAT(measured.err, HasSubstr("the request is for h100-sxm"));

  const std::string unconstrained = dir_.Write("free.yaml", text);
  const std::string other = dir_.Path("other.json");
  ASSERT_EQ(Cli({"plan", unconstrained, "--strategy", "size_greedy", "--planner", planner.address(),
                 "--format", "json", "--out", other})
                .exit_code,
            0);
  const ProcessResult diff = Cli({"diff", other, plan, "--request", request, "--planner",
                                  planner.address(), "--format", "json"});
  ASSERT_EQ(diff.exit_code, 0) << diff.err;
  const Json changes = Json::parse(diff.out);
  EXPECT_EQ(changes["after"]["cost_ms"], answer["cost"]["embedding_cost_ms"]);
  EXPECT_EQ(changes["before"]["cost_ms"], answer["comparison"][1]["embedding_cost_ms"]);
  // As the planner counts it.
  const ProcessResult migrated = Cli(
      {"plan", request, "--previous", other, "--planner", planner.address(), "--format", "json"});
  ASSERT_EQ(migrated.exit_code, 0) << migrated.err;
  const ProcessResult counted =
      Cli({"diff", other, dir_.Write("migrated.json", migrated.out), "--request", request,
           "--planner", planner.address(), "--format", "json"});
  ASSERT_EQ(counted.exit_code, 0) << counted.err;
  EXPECT_EQ(Json::parse(counted.out)["moved_bytes"],
            Json::parse(migrated.out)["migration"]["moved_bytes"]);
  EXPECT_GT(Json::parse(counted.out)["moved_bytes"], 0) << "users has to be on rank 1";

  text.replace(text.find("h100-sxm"), 8, "h100-smx");
  const ProcessResult unknown =
      Cli({"plan", dir_.Write("typo.yaml", text), "--planner", planner.address()});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("topology.hosts[0].device: "));
  EXPECT_THAT(unknown.err, HasSubstr("did you mean h100-sxm?"));
}

TEST_F(PlannerProcessTest, ATableThatFitsNowhereIsNamed) {
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  const std::string request = dir_.Write("huge.yaml", R"(
tables: [{name: colossus, num_embeddings: 100000000000, embedding_dim: 128, pooling_factor: 1}]
topology: {hosts: [{num_devices: 2, memory_bytes: 1073741824}]}
)");

  const ProcessResult result =
      Cli({"plan", request, "--planner", planner.address(), "--out", dir_.Path("never.json")});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("colossus"));
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("never.json")));
}

// Two kinds of hosts, each with a model of its own: another name, trained apart.
TEST_F(PlannerProcessTest, KindsOfDevicesHaveTheirOwnModels) {
  ModelFixtureOptions options;
  options.name = "slow";
  options.version = 2;
  options.seed = 2;
  ASSERT_TRUE(WriteModelFixture(dir_.Path("models"), options).ok());
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  std::string text = kRequest;
  text.replace(text.find("{num_devices: 2, memory_bytes: 4294967296}"), 42,
               "{device: h100-sxm, num_devices: 1}, {device: v100-sxm-16gb, num_devices: 1}");
  text +=
      "cost_model: {name: fixture}\ndevice_cost_models:\n"
      "- {device: v100-sxm-16gb, cost_model: {name: slow}}\n";
  const std::string request = dir_.Write("fleet.yaml", text);
  const ProcessResult planned = Cli({"plan", request, "--planner", planner.address(), "--format",
                                     "json", "--out", dir_.Path("plan.json")});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.err, HasSubstr("compute of v100-sxm-16gb (1 rank) by slow version 2"));
  const Json answer = Json::parse(std::ifstream(dir_.Path("plan.json")));
  EXPECT_EQ(answer["cost_model"]["name"], "fixture");
  const Json& devices = answer["price_basis"]["devices"];
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[0]["device"], "h100-sxm");
  EXPECT_EQ(devices[0]["model"], "fixture");
  EXPECT_EQ(devices[1]["model"], "slow");
  EXPECT_EQ(devices[1]["version"], 2);

  const ProcessResult evaluated = Cli({"evaluate", request, dir_.Path("plan.json"), "--planner",
                                       planner.address(), "--format", "json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_NEAR(Json::parse(evaluated.out)["cost"]["embedding_cost_ms"].get<double>(),
              answer["cost"]["embedding_cost_ms"].get<double>(), 1e-4);

  text.replace(text.find("name: slow"), 10, "name: gone");
  const ProcessResult gone =
      Cli({"plan", dir_.Write("gone.yaml", text), "--planner", planner.address()});
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_THAT(gone.err, HasSubstr("device_cost_models[0].cost_model: "));
}

// A search that would go on for minutes after its first plan.
std::string LargeRequest() {
  std::string request =
      "cost_model: {name: analytic}\nsearch: {strategy: neuroshard}\n"
      "topology: {hosts: [{count: 16, num_devices: 8, memory_bytes: 85899345920}]}\ntables:\n";
  for (int i = 0; i < 2000; ++i) {
    request += "- {name: t" + std::to_string(i) +
               ", num_embeddings: " + std::to_string(1000 + 7919 * i) +
               ", embedding_dim: 64, pooling_factor: " + std::to_string(1 + i % 50) +
               ", zipf_exponent: 1}\n";
  }
  return request;
}

TEST_F(PlannerProcessTest, AClientThatIsGoneLeavesNoSearchBehind) {
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  const auto metrics =
      planner.process().WaitForError("metrics_listening address=127.0.0.1:", kPatience);
  ASSERT_TRUE(metrics.has_value());
  const auto searches = [&] { return testing::HttpGet(std::stoi(*metrics), "/metrics"); };
  constexpr char kOne[] = "neuroshard_rpc_in_flight{rpc=\"ShardPlanStream\"} 1";
  constexpr char kNone[] = "neuroshard_rpc_in_flight{rpc=\"ShardPlanStream\"} 0";
  Subprocess client({Binary("neuroshard"), "plan", dir_.Write("large.yaml", LargeRequest()),
                     "--planner", planner.address(), "--stream"});
  ASSERT_TRUE(client.WaitForError("best ", kPatience).has_value()) << "the first plan";
  EXPECT_THAT(searches(), HasSubstr(kOne));

  client.Signal(SIGKILL);

  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  std::string seen = searches();
  while (seen.find(kNone) == std::string::npos && std::chrono::steady_clock::now() < give_up) {
    seen = searches();
  }
  EXPECT_THAT(seen, HasSubstr(kNone));
  EXPECT_EQ(client.Wait(kPatience).exit_code, 128 + SIGKILL);
  EXPECT_EQ(planner.Stop(), 0);
}

TEST_F(PlannerProcessTest, EveryFaultOfConstraintsIsListed) {
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  const ProcessResult result = Cli(
      {"plan", "--planner", planner.address(), dir_.Write("bad.yaml", std::string(kRequest) + R"(
constraints:
  sharding_types: [diagonal]
  tables:
    - {tables: [users, nobody], ranks: [2]}
    - {tables: [items]}
  separate: [{tables: [users]}]
migration: {budget_bytes: -1}
)")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, ::testing::AllOf(
                              HasSubstr("constraints.sharding_types[0]: must be one of table_wise"),
                              HasSubstr("constraints.tables[0].tables[1]: names no table"),
                              HasSubstr("constraints.tables[0].ranks[0]: must be from 0 to 1"),
                              HasSubstr("constraints.tables[1]: demands nothing"),
                              HasSubstr("constraints.separate[0].tables: must name at least two"),
                              HasSubstr("migration.previous: is required"),
                              HasSubstr("migration.budget_bytes: must be at least 0")));
}

Json ShardsOf(const Json& response, const std::string& table) {
  for (const Json& planned : response["plan"]["tables"]) {
    if (planned["name"] == table) return planned["shards"];
  }
  return Json::array();
}

TEST_F(PlannerProcessTest, ConstraintsAreKeptOverTheWire) {
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  const std::string request = dir_.Write("request.yaml", std::string(kRequest) + R"(
constraints:
  tables:
    - {tables: [users], ranks: [1], sharding_types: [table_wise]}
    - {tables: [queries], sharding_types: [row_wise]}
  separate: [{tables: [users, items]}]
)");
  const std::string plan = dir_.Path("plan.json");

  const ProcessResult planned = Cli({"plan", request, "--planner", planner.address(), "--explain",
                                     "--format", "json", "--out", plan});

  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.err, HasSubstr("exchanges of row_wise were not measured"));
  const Json response = Json::parse(std::ifstream(plan));
  ASSERT_EQ(ShardsOf(response, "users").size(), 1U);
  EXPECT_EQ(ShardsOf(response, "users")[0]["rank"], 1);
  EXPECT_EQ(ShardsOf(response, "queries").size(), 2U);
  for (const Json& shard : ShardsOf(response, "items")) EXPECT_EQ(shard["rank"], 0);
  EXPECT_FALSE(response["explanations"].empty());
  EXPECT_GT(response["lower_bound"]["cost_ms"].get<double>(), 0);
  const ProcessResult evaluated = Cli({"evaluate", request, plan, "--planner", planner.address()});
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.out << evaluated.err;

  // Nothing may move away from that plan.
  const ProcessResult again = Cli({"plan", request, "--planner", planner.address(), "--previous",
                                   plan, "--migration-budget-gib", "0"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("migration: nothing moves"));
}

TEST_F(PlannerProcessTest, ConstraintsThatContradictEachOtherAreNamed) {
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  const ProcessResult result =
      Cli({"plan", "--planner", planner.address(), dir_.Write("no.yaml", std::string(kRequest) + R"(
constraints:
  tables:
    - {tables: [items], max_shards: 3}
    - {tables: [users], ranks: [0]}
    - {tables: [users], forbidden_hosts: [0]}
)")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, ::testing::AllOf(HasSubstr("constraints.tables[2].forbidden_hosts"),
                                           ::testing::Not(HasSubstr("tables[0]"))));
}

TEST_F(PlannerProcessTest, ExamplesAndReferenceWorkloadsHavePlans) {
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  for (const std::string name :
       {"constraints_2x4.yaml", "warm_start_4x16gib.yaml", "mlperf_dlrm_dcnv2_8x80gb.yaml",
        "mlperf_dlrmv4_hstu_8x180gb.yaml", "mlperf_dlrmv4_hstu_16x180gb.yaml",
        "mlperf_dlrmv4_hstu_32x180gb.yaml"}) {
    const std::string request = NEUROSHARD_SOURCE_DIR "/configs/workloads/" + name;
    const std::string plan = dir_.Path("plan.json");
    const ProcessResult planned = Cli({"plan", request, "--planner", planner.address(), "--effort",
                                       "quick", "--format", "json", "--out", plan});
    ASSERT_EQ(planned.exit_code, 0) << name << ": " << planned.err;
    const ProcessResult evaluated =
        Cli({"evaluate", request, plan, "--planner", planner.address()});
    EXPECT_EQ(evaluated.exit_code, 0) << name << ": " << evaluated.out << evaluated.err;
    EXPECT_THAT(evaluated.out, HasSubstr("lower bound"));
  }
}

TEST_F(PlannerProcessTest, UsageErrorsExitWithTwo) {
  EXPECT_EQ(Cli({}).exit_code, 2);
  EXPECT_EQ(Cli({"plan"}).exit_code, 2);
  EXPECT_EQ(Cli({"plan", "x.yaml", "--no-such-flag"}).exit_code, 2);
  EXPECT_EQ(Cli({"--help"}).exit_code, 0);
  EXPECT_EQ(RunProcess({Binary("neuroshard-planner"), "--no-such-flag"}).exit_code, 2);
  const ProcessResult unversioned = RunProcess({Binary("neuroshard-pretrain"), "drift", "--model",
                                                dir_.Path("models/fixture"), "--store", "s.db"});
  EXPECT_EQ(unversioned.exit_code, 2);
  EXPECT_THAT(unversioned.err, ::testing::AllOf(HasSubstr("must be ROOT/NAME/VERSION"),
                                                HasSubstr(dir_.Path("models/fixture/1"))));
}

TEST_F(PlannerProcessTest, FailuresToStartAreClear) {
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  const ProcessResult busy =
      RunProcess({Binary("neuroshard-planner"), "--models", dir_.Path("models"), "--listen",
                  planner.address(), "--metrics", "127.0.0.1:0"});
  EXPECT_EQ(busy.exit_code, 1);
  EXPECT_THAT(busy.err, HasSubstr(planner.address()));

  const ProcessResult missing =
      RunProcess({Binary("neuroshard-planner"), "--models", dir_.Path("nowhere"), "--listen",
                  "127.0.0.1:0", "--metrics", "127.0.0.1:0"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("nowhere"));
}

TEST_F(PlannerProcessTest, PicksUpNewModelsAndKeepsServingPastBadOnes) {
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  const auto versions = [&] {
    const ProcessResult result =
        Cli({"models", "list", "--planner", planner.address(), "--format", "json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out);
  };
  ASSERT_EQ(versions()["models"].size(), 2U);  // and the built-in one

  // Made beside the root and moved in, as a rollout would; then a torn one.
  WriteModel("staging", 2);
  WriteModel("staging", 3);
  std::filesystem::resize_file(dir_.Path("staging/fixture/3/compute.safetensors"), 100);
  for (const char* version : {"2", "3"}) {
    std::filesystem::rename(dir_.Path("staging/fixture/") + version,
                            dir_.Path("models/fixture/") + version);
  }
  planner.process().Signal(SIGHUP);  // look now instead of at the next poll

  Json seen;
  const auto deadline = std::chrono::steady_clock::now() + kHangLimit;
  do {
    seen = versions();
    if (seen["models"].size() == 3 && seen["refused"].size() == 1) break;
  } while (std::chrono::steady_clock::now() < deadline);
  ASSERT_EQ(seen["models"].size(), 3U) << seen;
  ASSERT_EQ(seen["refused"].size(), 1U) << seen;
  EXPECT_THAT(seen["refused"][0]["reason"].get<std::string>(), HasSubstr("compute.safetensors"));

  const ProcessResult plan = Cli({"plan", dir_.Write("request.yaml", kRequest), "--planner",
                                  planner.address(), "--format", "json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_EQ(Json::parse(plan.out)["cost_model"]["version"], 2);
}

TEST_F(PlannerProcessTest, DrainsUnderLoad) {
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  const std::string request = dir_.Write("request.yaml", kRequest);
  std::vector<std::unique_ptr<Subprocess>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<Subprocess>(
        std::vector<std::string>{Binary("neuroshard"), "plan", request, "--planner",
                                 planner.address(), "--format", "json"}));
  }
  // At least one call has been answered, so the others are before, in or after theirs when the
  // signal comes.
  const ProcessResult first = clients[0]->Wait();
  ASSERT_EQ(first.exit_code, 0) << first.err;

  EXPECT_EQ(planner.Stop(), 0);

  for (auto& client : clients) {
    const ProcessResult result = client->Wait();
    if (result.exit_code == 0) {
      EXPECT_EQ(Json::parse(result.out)["plan"]["tables"].size(), 4U);
    } else {
      EXPECT_EQ(result.exit_code, 1);
      // Refused, cut off, or come too late, in the words of client/stub/channel.cc.
      EXPECT_THAT(result.err, ::testing::ContainsRegex("draining|the server ended|connect|"
                                                       "nothing listens there|[Uu]navailable"));
      EXPECT_EQ(result.out, "");
    }
  }
}

// MiB; VmRSS is held now, VmHWM was the most ever.
int MemoryMib(pid_t pid, const std::string& field) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string key; status >> key;) {
    int kib = 0;
    if (key == field + ":" && status >> kib) return kib / 1024;
  }
  return 0;
}

TEST_F(PlannerProcessTest, MemoryOfABadModelIsGivenBack) {
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  const int before_mib = MemoryMib(planner.process().pid(), "VmRSS");
  WriteModel("staging", 2);
  const std::string version = dir_.Path("staging/fixture/2");
  std::filesystem::resize_file(version + "/compute.safetensors", 900 << 20);
  // One of before versions had lists of their files, by which the file would not even be opened.
  std::filesystem::remove(version + "/files.sha256");
  std::ifstream listed_yaml(version + "/model.yaml");
  std::string yaml(std::istreambuf_iterator<char>(listed_yaml), {});
  const std::size_t format = yaml.find("neuroshard-cost-model/2");
  ASSERT_NE(format, std::string::npos);
  yaml.replace(format, 23, "neuroshard-cost-model/1");
  std::ofstream(version + "/model.yaml") << yaml;
  std::filesystem::rename(dir_.Path("staging/fixture/2"), dir_.Path("models/fixture/2"));
  planner.process().Signal(SIGHUP);
  const auto deadline = std::chrono::steady_clock::now() + kHangLimit;
  std::string listed;
  do {
    listed = Cli({"models", "list", "--planner", planner.address(), "--format", "json"}).out;
  } while (Json::parse(listed)["refused"].empty() && std::chrono::steady_clock::now() < deadline);
  EXPECT_THAT(listed, HasSubstr("compute.safetensors"));
  EXPECT_GT(MemoryMib(planner.process().pid(), "VmHWM"), 900) << "it was read";
  // AddressSanitizer keeps up to 256 MiB that were given back.
  EXPECT_LT(MemoryMib(planner.process().pid(), "VmRSS"), before_mib + 300);
}

TEST_F(PlannerProcessTest, RequestsThatWouldGrowInMemoryAreRefusedWithoutIt) {
  ServerProcess planner = StartPlanner(dir_.Path("models"));
  const int before_mib = MemoryMib(planner.process().pid(), "VmHWM");
  // Two bytes a table: 4.65 GiB once parsed.
  std::string tables;
  for (int i = 0; i < 30 << 20; ++i) tables.append("\x12\x00", 2);
  const std::vector<grpc::Slice> slices = {grpc::Slice(tables)};
  for (const bool compressed : {false, true}) {
    grpc::ChannelArguments arguments;
    if (compressed) arguments.SetCompressionAlgorithm(GRPC_COMPRESS_GZIP);
    const auto channel =
        grpc::CreateCustomChannel(planner.address(), grpc::InsecureChannelCredentials(), arguments);
    const grpc::internal::RpcMethod method("/neuroshard.v1.PlannerService/ShardPlan",
                                           grpc::internal::RpcMethod::NORMAL_RPC);
    grpc::ByteBuffer request(slices.data(), slices.size()), response;
    grpc::ClientContext context;
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
            channel.get(), method, &context, request, &response);
    EXPECT_EQ(status.error_code(),
              compressed ? grpc::StatusCode::UNIMPLEMENTED : grpc::StatusCode::RESOURCE_EXHAUSTED)
        << status.error_message();
  }
  EXPECT_LT(MemoryMib(planner.process().pid(), "VmHWM") - before_mib, 256);
  EXPECT_EQ(planner.Stop(), 0);
}

}  // namespace
}  // namespace neuroshard
