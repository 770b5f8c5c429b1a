#include <gmock/gmock.h>

#include "client/cli/input_file.h"
#include "common/base/violations.h"
#include "tests/support/faulty_fields.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;

Status FaultsAt(std::vector<std::string> fields) {
  Violations violations;
  for (std::string& field : fields) violations.Add(std::move(field), "bad");
  return violations.ToStatus();
}

TEST(InputFaultsTest, WhatCouldNotBeReadIsNotBlamedForItsValue) {
  const Status text =
      FaultsAt({"tables[0].rows", "tables[1]", "topology.hosts", "list[3]", "typo"});
  const Status values = FaultsAt({"tables[0].rows", "tables[0].cols", "tables[1].name",
                                  "tables[10].name", "topology", "list[2]", "list", "listed"});
  EXPECT_THAT(FaultyFields(FaultsOfTextAndValues(text, values)),
              ElementsAre("tables[0].rows", "tables[1]", "topology.hosts", "list[3]", "typo",
                          "tables[0].cols", "tables[10].name", "listed"));
  EXPECT_THAT(FaultyFields(FaultsOfTextAndValues(FaultsAt({"(document)"}), values)),
              ElementsAre("(document)"));
}

TEST(InputFaultsTest, ATextThatCannotBeReadAtAllIsTheOnlyFault) {
  const Status syntax = InvalidArgument("line 3: no");
  EXPECT_EQ(FaultsOfTextAndValues(syntax, FaultsAt({"tables"})), syntax);
}

}  // namespace
}  // namespace neuroshard
