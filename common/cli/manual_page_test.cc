#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "common/cli/command_line_parse.h"
#include "common/cli/help_formatter.h"
#include "common/cli/option_values.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ManualPageTest, HasWhatHelpShowsOfEveryCommandAndNothingThatTroffReadsAsItsOwn) {
  CLI::App app("NeuroShard tool: does things. More of them.", "neuroshard-tool");
  app.require_subcommand(1);
  app.footer("Exit codes: 0 or 1.");
  CLI::App* run = app.add_subcommand("run", "Runs 'it'");
  std::string text;
  run->add_option("FILE", text, ".dot first, and a back\\slash")->required();
  run->add_option("-f,--format", text, "Form")->check(OneOf({"table", "json"}));
  run->add_option("--planner", text, "Address")->envname("TOOL_PLANNER");
  run->add_option("--hidden", text, "Not for everybody")->group("");
  const char* const arguments[] = {"neuroshard-tool", "--man"};
  std::ostringstream out;
  std::ostringstream err;
  ASSERT_EQ(ParseCommandLine(app, 2, arguments, out, err), 0) << err.str();
  EXPECT_THAT(
      out.str(),
      AllOf(
          HasSubstr("\nneuroshard\\-tool \\- does things\n"),
          HasSubstr("\\fBneuroshard\\-tool run\\fR [\\fIOPTIONS\\fR] \\fIFILE\\fR\n"),
          HasSubstr("\nRuns \\(aqit\\(aq\n"), HasSubstr("\n\\&.dot first, and a back\\eslash\n"),
          HasSubstr(
              ".TP\n\\fB\\-f\\fR, \\fB\\-\\-format\\fR \\fITEXT\\fR\nForm [one of table, json]\n"),
          HasSubstr(".TP\n\\fBTOOL_PLANNER\\fR\nStands in for \\-\\-planner\n"),
          HasSubstr(".SH EXIT STATUS\nExit codes: 0 or 1.\n"), Not(HasSubstr("hidden")),
          Not(HasSubstr("\\-\\-man"))));
}

}  // namespace
}  // namespace neuroshard
