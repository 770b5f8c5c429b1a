#include "common/domain/table_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Table TableOf(std::string module, std::string name) {
  Table table;
  table.module = std::move(module);
  table.name = std::move(name);
  return table;
}

TablePlan EntryOf(std::string module, std::string name) {
  TablePlan entry;
  entry.module = std::move(module);
  entry.name = std::move(name);
  return entry;
}

TEST(TableNamesTest, ANameRefersToTheOnlyTableThatHasIt) {
  const TableNames names(std::vector{TableOf("user", "id"), TableOf("item", "id"),
                                     TableOf("item", "shop"), TableOf("", "page")});
  EXPECT_EQ(names.Resolve("user.id"), 0);
  EXPECT_EQ(names.Resolve("item.id"), 1);
  EXPECT_EQ(names.Resolve("shop"), 2);
  EXPECT_EQ(names.Resolve("item.shop"), 2);
  EXPECT_EQ(names.Resolve("page"), 3);
  EXPECT_EQ(names.Resolve("id"), -1);
  EXPECT_EQ(names.Resolve("user.shop"), -1);
  EXPECT_THAT(names.WhyUnresolved("id"), HasSubstr("several"));
  EXPECT_THAT(names.WhyUnresolved("id"), HasSubstr(R"("user.id", "item.id")"));
  EXPECT_THAT(names.WhyUnresolved("user.shop"), HasSubstr("names no table"));
}

TEST(TableNamesTest, AFullNameGoesBeforeAName) {
  const TableNames names(
      std::vector{TableOf("a", "t"), TableOf("", "t"), TableOf("b", "a.t"), TableOf("b", "u")});
  EXPECT_EQ(names.Resolve("t"), 1);
  EXPECT_EQ(names.Resolve("a.t"), 0);
  EXPECT_EQ(names.Resolve("b.a.t"), 2);
}

TEST(TableNamesTest, EveryReferenceResolvesToItsTable) {
  const TableNames names(std::vector{TableOf("a", "t"), TableOf("", "t"), TableOf("b", "a.t"),
                                     TableOf("b", "u"), TableOf("a", "u"), TableOf("c", "v")});
  for (int i = 0; i < 6; ++i) EXPECT_EQ(names.Resolve(names.ReferenceTo(i)), i) << i;
  EXPECT_EQ(names.ReferenceTo(0), "a.t");
  EXPECT_EQ(names.ReferenceTo(1), "t");
  EXPECT_EQ(names.ReferenceTo(2), "b.a.t");
  EXPECT_EQ(names.ReferenceTo(5), "v");
}

TEST(TableNamesTest, EntriesOfAPlanStandForTables) {
  const std::vector<Table> tables = {TableOf("a", "t"), TableOf("b", "t"), TableOf("b", "u"),
                                     TableOf("", "v")};
  Plan plan;
  plan.tables = {EntryOf("b", "t"), EntryOf("a", "t"), EntryOf("", "u"),
                 EntryOf("c", "v"), EntryOf("", "w"),  EntryOf("", "t")};
  EXPECT_THAT(TablesOf(plan, tables), ElementsAre(1, 0, 2, 3, -1, -1));
  // Of two entries with a name, the one that has no table is gone, not the other one's.
  plan.tables = {EntryOf("b", "u"), EntryOf("c", "u")};
  EXPECT_THAT(TablesOf(plan, tables), ElementsAre(2, -1));
  plan.tables = {EntryOf("d", "u"), EntryOf("c", "u")};
  EXPECT_THAT(TablesOf(plan, tables), ElementsAre(-1, -1));
}

}  // namespace
}  // namespace neuroshard
