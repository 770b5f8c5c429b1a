#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>

#include "client/cli/testing/command_line_fixture.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using testing::CommandLineTest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class CompletionTest : public CommandLineTest {
 protected:
  // What a real bash offers for the last of `words`.
  std::vector<std::string> Offered(const std::vector<std::string>& words) {
    EXPECT_EQ(Run({"completion", "bash"}), 0);
    std::string script = "source " + Write("completion.bash", out_) + "\nCOMP_WORDS=(neuroshard";
    for (const std::string& word : words) script += " '" + word + "'";
    script += ")\nCOMP_CWORD=" + std::to_string(words.size()) +
              "\n_neuroshard\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
    const std::string command = "bash " + Write("ask.bash", script) + " 2>&1";
    std::vector<std::string> lines;
    FILE* pipe = popen(command.c_str(), "r");
    std::array<char, 4096> line;
    while (pipe != nullptr && fgets(line.data(), line.size(), pipe) != nullptr) {
      lines.emplace_back(line.data());
      lines.back().pop_back();
    }
    EXPECT_EQ(pclose(pipe), 0);
    if (lines == std::vector<std::string>{""}) lines.clear();
    return lines;
  }
};

TEST_F(CompletionTest, BashOffersCommandsOptionsAndWords) {
  EXPECT_THAT(Offered({"pl"}), ElementsAre("plan"));
  EXPECT_THAT(Offered({"models", ""}), ElementsAre("list", "show", "serve"));
  EXPECT_THAT(Offered({"sweep", "c"}), ElementsAre("compute", "comm"));
  EXPECT_THAT(Offered({"plan", "r.yaml", "--st"}),
              ElementsAre("--strategy", "--steps", "--stream"));
  EXPECT_THAT(Offered({"plan", "--format", "t"}), ElementsAre("table", "torchrec"));
  EXPECT_THAT(Offered({"--v"}), ElementsAre("--version"));
}

TEST_F(CompletionTest, WhereItKnowsNothingTheShellOffersFiles) {
  EXPECT_THAT(Offered({"plan", ""}), IsEmpty());
  EXPECT_THAT(Offered({"plan", "--out", ""}), IsEmpty());
  EXPECT_EQ(Run({"completion", "bash"}), 0);
  EXPECT_THAT(out_, AllOf(HasSubstr("complete -o default -F _neuroshard neuroshard"),
                          Not(HasSubstr("--reconnect "))));
}

TEST_F(CompletionTest, OtherShellsHaveScriptsOfTheirOwn) {
  EXPECT_EQ(Run({"completion", "zsh"}), 0);
  EXPECT_THAT(out_, AllOf(HasSubstr("#compdef neuroshard"), HasSubstr("_neuroshard()")));
  EXPECT_EQ(Run({"completion", "fish"}), 0);
  EXPECT_THAT(out_, HasSubstr("-l 'format'"));
  EXPECT_EQ(Run({"completion", "tcsh"}), 2);
}

}  // namespace
}  // namespace neuroshard
