// `neuroshard ARGUMENTS` as a function, and its commands. Each Add puts one command with its
// options on the app; when it is chosen, parsing runs it and sets *exit_code. Console and exit_code
// must outlive the parse.
#pragma once

#include "client/cli/console.h"

namespace CLI {
class App;
}

namespace neuroshard {

using AddsCommand = void(CLI::App& app, const Console& console, int* exit_code);

AddsCommand AddPlanCommand, AddEvaluateCommand, AddEvalTasksCommand, AddSweepCommand,
    AddStoreCommand, AddValidateCommand, AddPredictCommand, AddModelsCommand, AddDevicesCommand,
    AddDiffCommand, AddInitCommand, AddDoctorCommand, AddReportCommand, AddCompletionCommand;

// All commands of the program.
AddsCommand AddCommands;

// Parses and runs. Returns the exit code (exit_code.h). Help goes to console.out, usage errors to
// console.err.
int RunCommandLine(int argc, const char* const* argv, const Console& console);

}  // namespace neuroshard
