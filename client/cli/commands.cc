#include "client/cli/commands.h"

#include <CLI/CLI.hpp>
#include <exception>

#include "common/cli/command_line_parse.h"
#include "common/cli/exit_code.h"

namespace neuroshard {

void AddCommands(CLI::App& app, const Console& console, int* exit_code) {
  for (AddsCommand* add :
       {AddPlanCommand, AddEvaluateCommand, AddEvalTasksCommand, AddSweepCommand, AddStoreCommand,
        AddValidateCommand, AddPredictCommand, AddModelsCommand, AddDevicesCommand, AddDiffCommand,
        AddInitCommand, AddDoctorCommand, AddReportCommand, AddCompletionCommand}) {
    add(app, console, exit_code);
  }
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
