#include "client/cli/commands.h"

#include <CLI/CLI.hpp>
#include <exception>

#include "common/cli/command_line_parse.h"
#include "common/cli/exit_code.h"

namespace neuroshard {

void AddCommands(CLI::App& app, const Console& console, int* exit_code) {
  AddPlanCommand(app, console, exit_code);
  AddEvaluateCommand(app, console, exit_code);
  AddEvalTasksCommand(app, console, exit_code);
  AddSweepCommand(app, console, exit_code);
  AddStoreCommand(app, console, exit_code);
  AddValidateCommand(app, console, exit_code);
  AddPredictCommand(app, console, exit_code);
  AddModelsCommand(app, console, exit_code);
  AddDevicesCommand(app, console, exit_code);
  AddDiffCommand(app, console, exit_code);
  AddInitCommand(app, console, exit_code);
  AddDoctorCommand(app, console, exit_code);
  AddReportCommand(app, console, exit_code);
  AddCompletionCommand(app, console, exit_code);
}

int RunCommandLine(int argc, const char* const* argv, const Console& console) {
  CLI::App app("Plans where embedding tables go, measures what they cost, and compares the two.",
               "neuroshard");
  app.require_subcommand(1);
  app.footer(kExitCodesText);
  int exit_code = kExitSuccess;
  AddCommands(app, console, &exit_code);
  try {
    if (const auto ended = ParseCommandLine(app, argc, argv, console.out, console.err)) {
      return *ended;
    }
  } catch (const std::exception& error) {
    return ReportFailure(console, Internal("{}", error.what()));
  }
  return exit_code;
}

}  // namespace neuroshard
