#include <gmock/gmock.h>

#include "common/base/violations.h"
#include "server/search/core/fixed_tables.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

TEST(KeptTablesTest, TablesThatNoLongerFitWhereTheyStayAreNamed) {
  PlanRequest request;
  request.memory.rule = MemoryRule::kWeightsOnly;
  request.topology.devices = {{0, 100'000}, {0, 100'000}};
  Migration& migration = request.migration.emplace();
  migration.only_types = {ShardingType::kColumnWise};
  for (const char* name : {"a", "b", "c"}) {
    Table table;
    table.name = name;
    table.num_embeddings = 1000;
    table.embedding_dim = 16;
    request.tables.push_back(table);
    const int rank = table.name == "c" ? 1 : 0;
    migration.previous.tables.push_back(
        {name, "", ShardingType::kTableWise, ComputeKernel::kFused, {{0, 1000, 0, 16, rank}}});
  }
  migration.previous.world_size = migration.previous.local_world_size = 2;
  const Status status = CheckKeptTables(request);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("only_types")));
  EXPECT_THAT(Violations::FromStatus(status),
              ElementsAre(Field(&Violation::description,
                                "'a', 'b', which must stay on rank 0, need 128000 bytes, it has "
                                "100000 for shards")));
}

}  // namespace
}  // namespace neuroshard
