#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "server/planner/table_warnings.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<ShardingType> kTypes = {ShardingType::kTableWise, ShardingType::kColumnWise,
                                          ShardingType::kRowWise};

// 96 GiB of weights on 4 devices of 80 GiB, and one small table.
PlanRequest Request() {
  PlanRequest request;
  for (const std::int64_t rows : {std::int64_t{201'326'592}, std::int64_t{1000}}) {
    Table& table = request.tables.emplace_back();
    table.name = rows > 1000 ? "large" : "small";
    table.num_embeddings = rows;
    table.embedding_dim = 128;
  }
  for (int i = 0; i < 4; ++i) {
    request.topology.devices.push_back({.memory_bytes = std::int64_t{80} << 30});
  }
  request.topology.host_memory_bytes = {std::int64_t{1} << 40};
  request.memory.rule = MemoryRule::kWeightsOnly;
  return request;
}

TableRule Rule(std::vector<int> tables, std::vector<ShardingType> types = {}) {
  TableRule rule;
  rule.tables = std::move(tables);
  rule.sharding_types = std::move(types);
  return rule;
}

Plan InHostMemory(ComputeKernel kernel = ComputeKernel::kFusedUvmCaching) {
  Plan plan;
  for (const char* name : {"large", "small"}) {
    TablePlan& table = plan.tables.emplace_back();
    table.name = name;
    table.compute_kernel = kernel;
  }
  return plan;
}

TEST(HostMemoryWarningsTest, NamesTheRuleThatLeavesNoShardThatFits) {
  PlanRequest request = Request();
  request.constraints.tables = {Rule({0, 1}, {ShardingType::kTableWise})};
  EXPECT_THAT(
      HostMemoryWarnings(request, kTypes, InHostMemory()),
      ElementsAre(AllOf(HasSubstr("\"large\" is in host memory (fused_uvm_caching)"),
                        HasSubstr("constraints.tables[0].sharding_types leaves it table_wise"),
                        HasSubstr("96.00 GiB"), HasSubstr("80.00 GiB"))));
}

TEST(HostMemoryWarningsTest, AnyRuleThatKeepsTheTableWholeDoesIt) {
  std::vector<Constraints> wholes(4);
  wholes[0].sharding_types = {ShardingType::kTableWise};
  wholes[1].tables = {Rule({0})};
  wholes[1].tables[0].max_shards = 1;
  wholes[2].tables = {Rule({0}, {ShardingType::kColumnWise})};
  wholes[2].tables[0].min_column_width = 128;
  wholes[3].max_shards_per_table = 1;
  for (const Constraints& constraints : wholes) {
    PlanRequest request = Request();
    request.constraints = constraints;
    EXPECT_THAT(HostMemoryWarnings(request, kTypes, InHostMemory()),
                ElementsAre(HasSubstr("\"large\"")));
  }
}

TEST(HostMemoryWarningsTest, HostsOfSeveralSizesCutRowsOverTheLargest) {
  PlanRequest request = Request();
  request.topology.devices[3].host = 1;
  request.topology.host_memory_bytes.push_back(0);
  request.constraints.tables = {Rule({0}, {ShardingType::kTableRowWise})};
  EXPECT_THAT(HostMemoryWarnings(request, kTypes, InHostMemory()), IsEmpty()) << "32 GiB on three";
  request.constraints.tables[0].hosts = {1};
  EXPECT_THAT(HostMemoryWarnings(request, kTypes, InHostMemory()),
              ElementsAre(HasSubstr("96.00 GiB at least")));
}

TEST(HostMemoryWarningsTest, NothingWhereAShardFitsOrTheRequestAsksForIt) {
  PlanRequest request = Request();
  EXPECT_THAT(HostMemoryWarnings(request, kTypes, InHostMemory()), IsEmpty()) << "its own choice";
  request.constraints.tables = {Rule({0}, {ShardingType::kColumnWise})};
  EXPECT_THAT(HostMemoryWarnings(request, kTypes, InHostMemory()), IsEmpty());
  request.constraints.tables[0].sharding_types = {ShardingType::kTableWise};
  EXPECT_THAT(HostMemoryWarnings(request, kTypes, InHostMemory(ComputeKernel::kFused)), IsEmpty());
  request.constraints.tables[0].compute_kernels = {ComputeKernel::kFusedUvm};
  EXPECT_THAT(HostMemoryWarnings(request, kTypes, InHostMemory()), IsEmpty()) << "asked for";
  // A table that no device and no cut has room for.
  request = Request();
  request.tables[0].num_embeddings *= 1000;
  request.constraints.tables = {Rule({0}, {ShardingType::kTableWise})};
  EXPECT_THAT(HostMemoryWarnings(request, kTypes, InHostMemory()), IsEmpty());
}

}  // namespace
}  // namespace neuroshard
