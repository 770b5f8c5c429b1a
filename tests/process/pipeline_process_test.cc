// The main job, end to end: profile real hardware, pre-train, plan over RPC, run the plan, compare;
// and what kill -9 leaves behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/domain/backend_names.h"
#include "common/store/profile_store.h"
#include "tests/process/servers.h"
#include "tests/process/subprocess.h"
#include "tests/process/temp_dir.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// Enough that a sweep is still running when its first records are seen.
constexpr int kComputeSamples = 200;
constexpr int kCommSamples = 24;

class PipelineProcessTest : public ::testing::Test {
 protected:
  PipelineProcessTest() {
    const std::string tables =
        std::string(NEUROSHARD_SOURCE_DIR) + "/configs/workloads/dlrm_2021_tables856.csv";
    compute_config_ = dir_.Write("compute.yaml", fmt::format(R"(
kind: compute
seed: 1
num_samples: {}
tables: {}
dims: [32, 16, 8, 4]
min_tables: 1
max_tables: 5
max_weights_bytes: 67108864
batch_size: 96
optimizer: sgd
settings: {{warmup_iterations: 1, min_iterations: 3, max_iterations: 3, flush_cache: false}}
)",
                                                             kComputeSamples, tables));
    comm_config_ = dir_.Write("comm.yaml", fmt::format(R"(
kind: comm
seed: 2
num_samples: {}
num_ranks: [3]
collectives: [all_to_all, reduce_scatter, all_gather, all_reduce]
batch_size: 96
max_start_offset: 2
settings: {{warmup_iterations: 1, min_iterations: 3, max_iterations: 3}}
)",
                                                       kCommSamples));
    store_ = dir_.Path("profile.db");
  }

  std::vector<std::string> SweepCommand(const std::string& kind, const std::string& config,
                                        const std::string& workers) const {
    return {Binary("neuroshard"), "sweep", kind, config, "--workers", workers, "--store", store_};
  }

  // Exactly the planned samples, none twice.
  void ExpectCompleteComputeSweep() const {
    auto store = ProfileStore::Open(store_, StoreMode::kReadOnly);
    ASSERT_TRUE(store.ok()) << store.status();
    auto records = (*store)->ReadRecords<ComputeRecord>();
    ASSERT_TRUE(records.ok()) << records.status();
    std::multiset<std::string> ids;
    for (const auto& record : *records) ids.insert(record.sample.sample_id);
    EXPECT_EQ(ids.size(), static_cast<std::size_t>(kComputeSamples));
    EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
  }

  int CountComputeRecords() const {
    auto store = ProfileStore::Open(store_, StoreMode::kReadOnly);
    if (!store.ok()) return 0;
    auto records = (*store)->ReadRecords<ComputeRecord>();
    return records.ok() ? static_cast<int>(records->size()) : 0;
  }

  // False when they do not come.
  bool WaitForComputeRecords(int count) const {
    const auto deadline = std::chrono::steady_clock::now() + kHangLimit;
    while (CountComputeRecords() < count) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  TempDir dir_;
  std::string compute_config_;
  std::string comm_config_;
  std::string store_;
};

TEST_F(PipelineProcessTest, SweepsOverThreeWorkersSurvivingKilledClientAndWorker) {
  ServerProcess first = StartWorker(1), second = StartWorker(1);
  auto third = std::make_unique<ServerProcess>(
      std::vector<std::string>{Binary("neuroshard-worker"), "--cpu-devices", "1", "--listen",
                               "127.0.0.1:0", "--metrics", "127.0.0.1:0"});
  const std::string workers = first.address() + "," + second.address() + "," + third->address();

  // Kill the client once it has stored something.
  {
    Subprocess client(SweepCommand("compute", compute_config_, workers));
    EXPECT_TRUE(WaitForComputeRecords(5));
    client.Signal(SIGKILL);
    EXPECT_EQ(client.Wait().exit_code, 137);
  }
  ASSERT_GE(CountComputeRecords(), 5);

  // The same command again, and now a worker dies in the middle of it.
  {
    const int before = CountComputeRecords();
    Subprocess client(SweepCommand("compute", compute_config_, workers));
    EXPECT_TRUE(WaitForComputeRecords(before + 5));
    third->process().Signal(SIGKILL);
    const ProcessResult result = client.Wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
  ExpectCompleteComputeSweep();

  // And once more: nothing is left to do, nothing is measured twice.
  const ProcessResult again = RunProcess(SweepCommand("compute", compute_config_, workers));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  ExpectCompleteComputeSweep();

  // Collectives between three different processes.
  ServerProcess fourth = StartWorker(1);
  const ProcessResult comm = RunProcess(SweepCommand(
      "comm", comm_config_, first.address() + "," + second.address() + "," + fourth.address()));
  EXPECT_EQ(comm.exit_code, 0) << comm.err;
  auto store = ProfileStore::Open(store_, StoreMode::kReadOnly);
  ASSERT_TRUE(store.ok()) << store.status();
  auto records = (*store)->ReadRecords<CommRecord>();
  ASSERT_TRUE(records.ok()) << records.status();
  std::map<std::string, int> seen;
  for (const auto& record : *records) {
    ++seen[record.sample.sample_id];
    EXPECT_EQ(record.cost_ms.size(), 3U);
    EXPECT_EQ(CollectiveBackendOf(record.environments.back()), "neuroshard-tcp");
  }
  EXPECT_EQ(seen.size(),
            static_cast<std::size_t>(5 * kCommSamples));  // both all-to-alls, three others
  for (const auto& [id, count] : seen) EXPECT_EQ(count, 1) << id;
  EXPECT_EQ(first.Stop(), 0);
}

TEST_F(PipelineProcessTest, FromMeasurementsToAValidatedPlan) {
  ServerProcess first = StartWorker(2), second = StartWorker(1);
  const std::string workers = first.address() + "," + second.address();
  const ProcessResult compute = RunProcess(SweepCommand("compute", compute_config_, workers));
  ASSERT_EQ(compute.exit_code, 0) << compute.err;
  const ProcessResult comm = RunProcess(SweepCommand("comm", comm_config_, workers));
  ASSERT_EQ(comm.exit_code, 0) << comm.err;

  const std::string train_config =
      dir_.Write("train.yaml", "max_epochs: 20\nmin_compute_tau: -1  # of a handful of samples\n");
  const ProcessResult trained =
      RunProcess({Binary("neuroshard-pretrain"), "train", "--store", store_, "--config",
                  train_config, "--out", dir_.Path("models/cpu/1")});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const ProcessResult scored =
      RunProcess({Binary("neuroshard-pretrain"), "evaluate", "--model", dir_.Path("models/cpu/1"),
                  "--store", store_, "--format", "json"});
  ASSERT_EQ(scored.exit_code, 0) << scored.err;
  // Those whose tables have lookups, as most of that seed's have.
  const int scored_samples = Json::parse(scored.out)["compute"]["samples"];
  EXPECT_GT(scored_samples, 0.9 * kComputeSamples);
  EXPECT_THAT(scored.err, HasSubstr(fmt::format("warning: {} compute samples look nothing up",
                                                kComputeSamples - scored_samples)));

  ServerProcess planner = StartPlanner(dir_.Path("models"));
  const std::string request = dir_.Write("request.yaml", R"(
tables:
  - {name: a, num_embeddings: 10000, embedding_dim: 32, pooling_factor: 3}
  - {name: b, num_embeddings: 20000, embedding_dim: 16, pooling_factor: 9}
  - {name: c, num_embeddings: 500, embedding_dim: 64, pooling_factor: 1}
  - {name: d, num_embeddings: 8000, embedding_dim: 8, pooling_factor: 20}
topology: {compute_device: cpu, hosts: [{num_devices: 3, memory_bytes: 268435456}]}
global_batch_size: 96
pipeline_type: none
)");
  const std::string plan = dir_.Path("plan.json");
  const ProcessResult planned = RunProcess({Binary("neuroshard"), "plan", request, "--planner",
                                            planner.address(), "--format", "json", "--out", plan});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  // From the workers' records over the store and the model to every answer.
  const Json answer = Json::parse(std::ifstream(plan));
  const Json& with = answer["cost"]["measured_with"];
  EXPECT_EQ(with["backend"], "neuroshard-cpu") << answer["cost"];
  EXPECT_EQ(with["collective_backend"], "neuroshard-tcp");
  EXPECT_NE(with["device"], "");
  const ProcessResult validated =
      RunProcess({Binary("neuroshard"), "validate", request, plan, "--workers", workers, "--store",
                  store_, "--format", "json"});
  ASSERT_EQ(validated.exit_code, 0) << validated.err;
  const Json report = Json::parse(validated.out);
  EXPECT_EQ(report["ranks"].size(), 3U) << report;
  EXPECT_EQ(report["measured_with"], with);
  const auto store = ProfileStore::Open(store_, StoreMode::kReadOnly);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto sweeps = (*store)->Statistics();
  ASSERT_TRUE(sweeps.ok()) << sweeps.status();
  EXPECT_EQ(sweeps->back().name, "validation");
  EXPECT_EQ(sweeps->back().kind, SweepKind::kComm);
  EXPECT_EQ(sweeps->back().ok, 3) << "ids, and vectors in both directions";

  // Rows cut, and a table replicated: what a trainer runs of them, collective by collective.
  const std::string mixed = dir_.Write("mixed.json", R"({"world_size": 3, "local_world_size": 3,
    "tables": [{"name": "a", "sharding_type": "row_wise", "compute_kernel": "fused", "shards": [
        {"rows": 3334, "cols": 32, "rank": 0}, {"row_offset": 3334, "rows": 3334, "cols": 32, "rank": 1},
        {"row_offset": 6668, "rows": 3332, "cols": 32, "rank": 2}]},
      {"name": "b", "sharding_type": "table_wise", "compute_kernel": "fused", "shards": [
        {"rows": 20000, "cols": 16, "rank": 1}]},
      {"name": "c", "sharding_type": "data_parallel", "compute_kernel": "dense", "shards": [
        {"rows": 500, "cols": 64, "rank": 0}, {"rows": 500, "cols": 64, "rank": 1},
        {"rows": 500, "cols": 64, "rank": 2}]},
      {"name": "d", "sharding_type": "table_wise", "compute_kernel": "fused", "shards": [
        {"rows": 8000, "cols": 8, "rank": 2}]}]})");
  const std::string kept = dir_.Path("validation.db");
  const ProcessResult cut = RunProcess(
      {Binary("neuroshard"), "validate", request, mixed, "--workers", workers, "--planner",
       planner.address(), "--store", kept, "--max-time-ms", "100", "--format", "json"});
  ASSERT_EQ(cut.exit_code, 0) << cut.err;
  const Json cut_report = Json::parse(cut.out);
  std::vector<std::string> collectives;
  for (const Json& collective : cut_report["collectives"]) {
    collectives.push_back(collective["collective"]);
    for (const Json& ms : collective["measured_ms"]) EXPECT_GT(ms, 0) << collective;
  }
  EXPECT_THAT(collectives, ElementsAre("input_dist", "all_to_all", "all_gather", "all_reduce",
                                       "all_to_all", "reduce_scatter"));
  const Json& of_rank = cut_report["ranks"][1]["stages"];
  double sum_ms = 0;
  for (const char* stage : {"input_dist", "compute", "backward_comm", "forward_comm"}) {
    sum_ms += of_rank[stage]["measured_ms"].get<double>();
  }
  EXPECT_DOUBLE_EQ(of_rank["total"]["measured_ms"], sum_ms);
  EXPECT_GT(of_rank["input_dist"]["predicted_ms"], 0);
  EXPECT_GT(cut_report["embedding_cost"]["measured_ms"], 0);
  // The records are as good as a sweep's: a model is compared with each.
  const ProcessResult compared =
      RunProcess({Binary("neuroshard-pretrain"), "evaluate", "--model", dir_.Path("models/cpu/1"),
                  "--store", kept, "--format", "json"});
  ASSERT_EQ(compared.exit_code, 0) << compared.err;
  const Json scores = Json::parse(compared.out);
  EXPECT_EQ(scores["compute"]["samples"], 6) << "shards and replicas of each rank";
  for (const char* stage :
       {"forward_comm", "backward_comm", "reduce_scatter", "all_gather", "all_reduce"}) {
    ASSERT_TRUE(scores.contains(stage)) << compared.out;
    EXPECT_EQ(scores[stage]["samples"], 1) << stage;
  }

  const ProcessResult predicted =
      RunProcess({Binary("neuroshard"), "predict", "compute", request, "--planner",
                  planner.address(), "--batch-size", "32,96", "--format", "json"});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  const Json predictions = Json::parse(predicted.out)["predictions"];
  ASSERT_EQ(predictions.size(), 8U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(predictions[i]["batch_size"], 32);
    EXPECT_GT(predictions[i + 4]["total_ms"], 0) << predicted.out;
  }
}

TEST_F(PipelineProcessTest, SweepFailuresAreClearAndLoseNothing) {
  const ProcessResult nobody =
      RunProcess({Binary("neuroshard"), "sweep", "compute", compute_config_, "--workers",
                  "127.0.0.1:1", "--store", store_, "--reconnect", "1"});
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("127.0.0.1:1"));

  ServerProcess worker = StartWorker(1);
  const ProcessResult no_config =
      RunProcess(SweepCommand("compute", dir_.Path("missing.yaml"), worker.address()));
  EXPECT_NE(no_config.exit_code, 0);
  EXPECT_THAT(no_config.err, HasSubstr("missing.yaml"));

  const std::string bad = dir_.Write("bad.yaml", "kind: compute\nnum_samples: -3\nbatchsize: 1\n");
  const ProcessResult bad_config = RunProcess(SweepCommand("compute", bad, worker.address()));
  EXPECT_NE(bad_config.exit_code, 0);
  EXPECT_THAT(bad_config.err, HasSubstr("num_samples"));
  EXPECT_THAT(bad_config.err, HasSubstr("batchsize"));

  const std::string not_a_store = dir_.Write("text.db", std::string(5000, 'x'));
  const ProcessResult bad_store =
      RunProcess({Binary("neuroshard"), "sweep", "compute", compute_config_, "--workers",
                  worker.address(), "--store", not_a_store});
  EXPECT_EQ(bad_store.exit_code, 1);
  EXPECT_THAT(bad_store.err, HasSubstr("text.db"));
}

}  // namespace
}  // namespace neuroshard
