#include "client/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <exception>

#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "common/base/build_info.h"

namespace neuroshard {

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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error, console.out, console.err) == 0 ? kExitSuccess : kExitUsage;
  } catch (const std::exception& error) {
    return ReportFailure(console, Internal("{}", error.what()));
  }
  return exit_code;
}

}  // namespace neuroshard
