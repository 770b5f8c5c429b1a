// `neuroshard` run in this process, with a planner to ask and a folder to write to, for tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/commands.h"
#include "common/codec/text_file.h"
#include "tests/support/fake_planner.h"

namespace neuroshard::testing {

inline constexpr char kRequest[] = R"(
tables:
- {name: a, num_embeddings: 100, embedding_dim: 8, pooling_factor: 2, zipf_exponent: 1}
- {name: b, num_embeddings: 50, embedding_dim: 16, pooling_factor: 1, zipf_exponent: 1}
topology: {hosts: [{num_devices: 2, memory_bytes: 100000}]}
global_batch_size: 64
)";

inline constexpr char kPlan[] = R"({"world_size": 2, "local_world_size": 2, "tables": [
  {"name": "a", "sharding_type": "table_wise", "compute_kernel": "fused", "shards": [{"rows": 100, "cols": 8, "rank": 0}]},
  {"name": "b", "sharding_type": "column_wise", "compute_kernel": "fused",
   "shards": [{"rows": 50, "cols": 8, "rank": 0}, {"rows": 50, "col_offset": 8, "cols": 8, "rank": 1}]}]})";

class CommandLineTest : public ::testing::Test {
 protected:
  CommandLineTest()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ("cli_" + std::to_string(getpid()) + "_" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    request_ = Write("request.yaml", kRequest);
    plan_ = Write("plan.json", kPlan);
    planner_.plan = [](const v1::ShardPlanRequest& request, v1::ShardPlanResponse* response) {
      response->mutable_plan()->set_world_size(2);
      for (const v1::Table& table : request.tables()) {
        v1::TablePlan* plan = response->mutable_plan()->add_tables();
        plan->set_name(table.name());
        plan->set_sharding_type("table_wise");
        plan->set_compute_kernel("fused");
        v1::Shard* shard = plan->add_shards();
        shard->set_rows(table.num_embeddings());
        shard->set_cols(table.embedding_dim());
        shard->set_rank((response->plan().tables_size() - 1) % 2);
      }
      response->mutable_cost()->set_embedding_cost_ms(7.5);
      response->mutable_search()->set_strategy(request.search().strategy());
      response->mutable_search()->set_search_ms(1.5);
      return grpc::Status::OK;
    };
  }
  ~CommandLineTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = (folder_ / name).string();
    EXPECT_TRUE(WriteTextFile(path, text).ok()) << path;
    return path;
  }

  // Returns the exit code; the output is in out_ and err_.
  int Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "neuroshard");
    std::vector<const char*> argv;
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    std::ostringstream out;
    std::ostringstream err;
    const int code =
        RunCommandLine(static_cast<int>(argv.size()), argv.data(), {out, err, err_is_terminal_});
    out_ = out.str();
    err_ = err.str();
    return code;
  }

  std::filesystem::path folder_;
  std::string request_;
  std::string plan_;
  FakePlanner planner_;
  std::string out_;
  std::string err_;
  bool err_is_terminal_ = false;
};

}  // namespace neuroshard::testing
