#include "client/cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "common/base/build_info.h"
#include "common/base/printable_text.h"
#include "common/base/similar_word.h"

namespace neuroshard {

namespace {

// What is wrong with a word where the name of a command belongs; empty: nothing, or there is none.
std::string WhyNoCommand(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* parent = &app;
  for (int i = 1; i < argc && parent->get_require_subcommand_min() > 0; ++i) {
    const std::string word = argv[i];
    if (word.starts_with('-')) return "";
    std::vector<std::string> names;
    const CLI::App* found = nullptr;
    for (const CLI::App* command : parent->get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(command->get_name());
      if (command->get_name() == word) found = command;
    }
    if (found == nullptr) {
      const std::string similar = SimilarWord(word, names);
      return fmt::format("{} is no command of {}{}; there are {}", Quoted(word), parent->get_name(),
                         similar.empty() ? "" : fmt::format("; did you mean {}?", similar),
                         fmt::join(names, ", "));
    }
    parent = found;
  }
  return "";
}

}  // namespace

int RunCommandLine(int argc, const char* const* argv, const Console& console) {
  CLI::App app("Plans where embedding tables go, measures what they cost, and compares the two.",
               "neuroshard");
  app.set_version_flag("--version", BuildText());
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 success, 1 failure, 2 usage error, 130 a sweep or a validation that was "
      "interrupted.");
  int exit_code = kExitSuccess;
  AddPlanCommand(app, console, &exit_code);
  AddEvaluateCommand(app, console, &exit_code);
  AddEvalTasksCommand(app, console, &exit_code);
  AddSweepCommand(app, console, &exit_code);
  AddValidateCommand(app, console, &exit_code);
  AddPredictCommand(app, console, &exit_code);
  AddModelsCommand(app, console, &exit_code);
  AddDevicesCommand(app, console, &exit_code);
  AddDiffCommand(app, console, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (const std::string why = WhyNoCommand(app, argc, argv); !why.empty()) {
      console.err << why << '\n';
      return kExitUsage;
    }
    return app.exit(error, console.out, console.err) == 0 ? kExitSuccess : kExitUsage;
  } catch (const std::exception& error) {
    return ReportFailure(console, Internal("{}", error.what()));
  }
  return exit_code;
}

}  // namespace neuroshard
