#include "client/cli/text_table.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

TEST(TextTableTest, ALastColumnOfTextGoesOnInFurtherLines) {
  TextTable table{{{"n"}, {"what", TextTable::Align::kLeft}}};
  table.rows.push_back({{"1", "some words that need two"}});
  table.rows.push_back({{"22", "short"}});
  EXPECT_EQ(table.ToString({.columns = 20}),
            " n  what\n"
            " 1  some words that\n"
            "    need two\n"
            "22  short\n");
  EXPECT_EQ(table.ToString({.detail = Detail::kWide, .columns = 20}),
            " n  what\n"
            " 1  some words that need two\n"
            "22  short\n");
  EXPECT_EQ(table.ToString({.columns = 19}), table.ToString({.detail = Detail::kWide}))
      << "too narrow to wrap";
}

TEST(TextTableTest, CharactersLineUpAndMarksAreColoursOnTerminalsOnly) {
  TextTable table{{{"a", TextTable::Align::kLeft}, {"b"}}};
  table.rows.push_back({{"\xC3\xA4\xC3\xA4", "1"}});
  table.rows.push_back({{"x", "2"}, TextTable::Mark::kRed});
  EXPECT_EQ(table.ToString(), "a   b\n\xC3\xA4\xC3\xA4  1\nx   2\n");
  EXPECT_EQ(table.ToString({.colour = true}), "a   b\n\xC3\xA4\xC3\xA4  1\n\033[31mx   2\033[0m\n");
}

}  // namespace
}  // namespace neuroshard
