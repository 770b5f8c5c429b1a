#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/planner/table_warnings.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

PlanRequest FromPrevious(std::int64_t rows_of_a) {
  PlanRequest request;
  for (const char* name : {"a", "b"}) {
    Table& table = request.tables.emplace_back();
    table.name = name;
    table.num_embeddings = 100;
    table.embedding_dim = 8;
  }
  TablePlan& before = request.migration.emplace().previous.tables.emplace_back();
  before.name = "a";
  before.shards = {{.rows = rows_of_a, .cols = 8}};
  return request;
}

TEST(MigrationWarningsTest, NothingWhereThePreviousPlanIsTheRequests) {
  EXPECT_THAT(MigrationWarnings(FromPrevious(100)), IsEmpty());  // b is new
  PlanRequest request = FromPrevious(100);
  request.migration->previous.tables.clear();
  EXPECT_THAT(MigrationWarnings(request), IsEmpty());
  request.migration.reset();
  EXPECT_THAT(MigrationWarnings(request), IsEmpty());
}

TEST(MigrationWarningsTest, NamesTablesOfAnotherSize) {
  EXPECT_THAT(MigrationWarnings(FromPrevious(99)),
              ElementsAre(AllOf(HasSubstr("1 table(s)"), HasSubstr("\"a\"; they count as new"),
                                Not(HasSubstr("\"b\"")))));
}

TEST(MigrationWarningsTest, SaysWhenItIsThePlanOfSomethingElse) {
  PlanRequest request = FromPrevious(100);
  request.migration->previous.tables[0].name = "z";
  EXPECT_THAT(MigrationWarnings(request), ElementsAre(HasSubstr("none of the request's tables")));
}

}  // namespace
}  // namespace neuroshard
