#include "common/cli/command_line_parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/build_info.h"
#include "common/cli/option_values.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// A program with a command of each sort of option.
class CommandLineParseTest : public ::testing::Test {
 protected:
  std::optional<int> Parse(std::vector<const char*> arguments) {
    CLI::App app("Does things.", "tool");
    app.require_subcommand(1);
    app.add_subcommand("stop", "Stops");
    CLI::App* run = app.add_subcommand("run", "Runs");
    run->add_option("FILE", file_, "What is run");
    InRange(run->add_option("--timeout-s", timeout_s_, "Gives up"), 1, 86'400)
        ->capture_default_str();
    InRange(run->add_option("--share", share_, "How much"), 0.0, 1.0);
    NotNegative(run->add_option("--seed", seed_, "Chance"));
    run->add_option("--log", file_, "File of the log, \"\": none");
    run->add_option("--format", format_, "Form")->check(OneOf({"table", "json"}));
    run->add_option("--planner", planner_, "Address " + std::string(100, 'x') + " of it")
        ->envname("TOOL_PLANNER")
        ->check([](const std::string& text) {
          return text == "bad" ? std::string("must be HOST:PORT, got \"bad\"") : std::string();
        });
    arguments.insert(arguments.begin(), "tool");
    std::ostringstream out;
    std::ostringstream err;
    const auto code =
        ParseCommandLine(app, static_cast<int>(arguments.size()), arguments.data(), out, err);
    out_ = out.str();
    err_ = err.str();
    return code;
  }

  std::string file_;
  int timeout_s_ = 600;
  double share_ = 0;
  std::uint64_t seed_ = 0;
  std::string format_;
  std::string planner_;
  std::string out_;
  std::string err_;
};

TEST_F(CommandLineParseTest, AMisspeltVariableIsSaid) {
  for (const auto& [name, said] : std::vector<std::pair<const char*, const char*>>{
           {"TOOL_PLANER",
            "warning: the variable TOOL_PLANER is not read; did you mean "
            "TOOL_PLANNER?\n"},
           {"TOOL_PLANNER_SERVICE_HOST", ""},
           {"OTHER_PLANER", ""}}) {
    setenv(name, "a:1", 1);
    EXPECT_FALSE(Parse({"run"}).has_value());
    unsetenv(name);
    EXPECT_EQ(err_, said);
    EXPECT_EQ(planner_, "");
  }
}

TEST_F(CommandLineParseTest, HelpAndVersionAreEverywhere) {
  for (const std::vector<const char*>& arguments :
       std::vector<std::vector<const char*>>{{"--version"}, {"run", "--version"}}) {
    EXPECT_EQ(Parse(arguments), 0);
    EXPECT_EQ(out_, BuildText() + "\n");
  }
  EXPECT_EQ(Parse({"run", "--help"}), 0);
  EXPECT_THAT(out_, AllOf(HasSubstr("[default: 600]"), HasSubstr("[one of table, json]"),
                          HasSubstr("[environment: TOOL_PLANNER]"), Not(HasSubstr("--version"))));
  std::istringstream lines(out_);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("xxx") == std::string::npos) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
  EXPECT_THAT(err_, IsEmpty());
}

TEST_F(CommandLineParseTest, AnEmptyValueIsNoAbsentOption) {
  for (const char* name : {"--planner", "--timeout-s", "--share", "--seed", "--format"}) {
    EXPECT_EQ(Parse({"run", name, ""}), 2) << name;
    EXPECT_THAT(err_, AllOf(StartsWith(std::string(name) + ": must "), HasSubstr("got \"\"")));
  }
  EXPECT_EQ(Parse({"run", ""}), 2);
  EXPECT_THAT(err_, StartsWith("FILE: must not be empty"));
  EXPECT_EQ(Parse({"run", "--log", ""}), std::nullopt) << err_;  // its help says what "" is
  setenv("TOOL_PLANNER", "", 1);                                 // as one that is not set
  EXPECT_EQ(Parse({"run"}), std::nullopt) << err_;
  unsetenv("TOOL_PLANNER");
}

// Two commands that share a C++ variable, as those of `neuroshard store` do.
TEST(CommandLineVariablesTest, AnotherCommandsVariableDoesNotReplaceWhatWasGiven) {
  std::string shared;
  CLI::App app("Does things.", "tool");
  for (const char* name : {"first", "second", "third"}) {
    CLI::Option_group* group = app.add_subcommand(name, "Does it")->add_option_group("group");
    group->add_option("--store", shared, "Where")->envname("TOOL_STORE");
  }
  setenv("TOOL_STORE", "variable", 1);
  std::ostringstream out;
  for (const char* name : {"first", "second", "third"}) {
    const char* const given[] = {"tool", name, "--store", "given"};
    ASSERT_EQ(ParseCommandLine(app, 4, given, out, out), std::nullopt) << out.str();
    EXPECT_EQ(shared, "given") << name;
  }
  unsetenv("TOOL_STORE");
}

TEST_F(CommandLineParseTest, MisspeltNamesAreToldWhichWasMeant) {
  EXPECT_EQ(Parse({"rnu"}), 2);
  EXPECT_THAT(err_,
              StartsWith("\"rnu\" is no command of tool; did you mean run?; there are stop, run\n"
                         "Run `tool --help`"));
  EXPECT_EQ(Parse({}), 2);
  EXPECT_THAT(err_, StartsWith("tool needs a command: stop, run\n"));
  EXPECT_EQ(Parse({"run", "f", "--planr", "x"}), 2);
  EXPECT_THAT(err_, StartsWith("tool run has no option \"--planr\"; did you mean --planner?\n"
                               "Run `tool run --help`"));
  EXPECT_EQ(Parse({"run", "--planr=x"}), 2);
  EXPECT_THAT(err_, HasSubstr("\"--planr\"; did you mean --planner?"));
  EXPECT_EQ(Parse({"run", "--format", "jsn"}), 2);
  EXPECT_THAT(err_,
              HasSubstr("--format: must be one of table, json, got \"jsn\"; did you mean json?"));
}

TEST_F(CommandLineParseTest, NumbersMayHaveAUnitAndSayTheirRange) {
  EXPECT_EQ(Parse({"run", "--timeout-s", "1h", "--share", "0.5", "--seed", "1_000"}), std::nullopt)
      << err_;
  EXPECT_EQ(timeout_s_, 3600);
  EXPECT_EQ(share_, 0.5);
  EXPECT_EQ(seed_, 1000u);
  for (const char* bad : {"0", "2d", "x", "1.5", "-1", ""}) {
    EXPECT_EQ(Parse({"run", "--timeout-s", bad}), 2) << bad;
  }
  EXPECT_EQ(Parse({"run", "--timeout-s", "1 fortnight"}), 2);
  EXPECT_THAT(err_, HasSubstr("--timeout-s: must be an integer from 1 to 86400 (or with a unit: "
                              "500ms, 90s, 1h), got \"1 fortnight\""));
  for (const char* bad : {"nan", "1.5", "-0.1", "x"}) {
    EXPECT_EQ(Parse({"run", "--share", bad}), 2) << bad;
  }
  EXPECT_EQ(Parse({"run", "--seed", "-1"}), 2);
  EXPECT_EQ(Parse({"run", "--seed", "18446744073709551615"}), std::nullopt);
  EXPECT_EQ(seed_, ~std::uint64_t{0});
}

TEST_F(CommandLineParseTest, AWrongVariableOfTheEnvironmentIsNamed) {
  ASSERT_EQ(setenv("TOOL_PLANNER", "bad", 1), 0);
  EXPECT_EQ(Parse({"run"}), 2);
  EXPECT_THAT(err_, HasSubstr("got \"bad\" (from TOOL_PLANNER)"));
  EXPECT_EQ(Parse({"run", "--planner", "good"}), std::nullopt);
  ASSERT_EQ(setenv("TOOL_PLANNER", "good", 1), 0);
  EXPECT_EQ(Parse({"run", "--planner", "bad"}), 2);
  EXPECT_THAT(err_, Not(HasSubstr("TOOL_PLANNER")));
  ASSERT_EQ(unsetenv("TOOL_PLANNER"), 0);
}

}  // namespace
}  // namespace neuroshard
