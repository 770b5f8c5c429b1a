#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/domain/table_names.h"
#include "server/evaluate/check_layout.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Table Unpooled(std::string module, std::string name) {
  Table table;
  table.module = std::move(module);
  table.name = std::move(name);
  table.num_embeddings = 10;
  table.embedding_dim = 16;
  table.kind = TableKind::kEmbedding;
  return table;
}

// Column blocks of these widths.
TablePlan Cut(const Table& table, const std::vector<std::int64_t>& widths) {
  TablePlan entry{.name = table.name,
                  .module = table.module,
                  .sharding_type = ShardingType::kColumnWise,
                  .shards = {}};
  std::int64_t offset = 0;
  for (const std::int64_t width : widths) {
    entry.shards.push_back({0, table.num_embeddings, offset, width, 0});
    offset += width;
  }
  return entry;
}

std::vector<std::string> Fields(const PlanRequest& request, const Plan& plan) {
  Violations violations;
  CheckUnpooledTables(request, plan, TablesOf(plan, request.tables), violations);
  std::vector<std::string> fields;
  for (const Violation& violation : violations.kept()) fields.push_back(violation.field);
  return fields;
}

TEST(CheckUnpooledTest, TakesWhatTorchRecsEmbeddingCollectionRuns) {
  PlanRequest request;
  request.tables = {Unpooled("ec", "a")};
  Plan plan;
  for (const auto& word : kWords<ShardingType>) {
    plan.tables = {
        TablePlan{.name = "a", .module = "ec", .sharding_type = word.value, .shards = {}}};
    const bool runs = word.value == ShardingType::kTableWise ||
                      word.value == ShardingType::kColumnWise ||
                      word.value == ShardingType::kRowWise;
    EXPECT_EQ(Fields(request, plan).empty(), runs) << word.text;
    request.tables[0].kind = TableKind::kEmbeddingBag;
    EXPECT_THAT(Fields(request, plan), IsEmpty()) << word.text;
    request.tables[0].kind = TableKind::kEmbedding;
  }
}

TEST(CheckUnpooledTest, ColumnBlocksOfACollectionHaveOneWidth) {
  PlanRequest request;
  request.tables = {Unpooled("ec", "a"), Unpooled("ec", "b"), Unpooled("other", "c")};
  Plan plan;
  plan.tables = {Cut(request.tables[0], {8, 8}), Cut(request.tables[1], {8, 8}),
                 Cut(request.tables[2], {4, 4, 4, 4})};
  EXPECT_THAT(Fields(request, plan), IsEmpty());
  plan.tables[1] = Cut(request.tables[1], {16});
  EXPECT_THAT(Fields(request, plan), ElementsAre("plan.tables[1].shards[0].cols"));
  plan.tables[1].sharding_type = ShardingType::kTableWise;
  EXPECT_THAT(Fields(request, plan), IsEmpty());
  plan.tables[0] = Cut(request.tables[0], {12, 4});
  EXPECT_THAT(Fields(request, plan), ElementsAre("plan.tables[0].shards[1].cols"));
}

}  // namespace
}  // namespace neuroshard
