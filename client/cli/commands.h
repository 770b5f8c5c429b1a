// `neuroshard ARGUMENTS` as a function, and its commands. Each Add puts one command with its
// options on the app; when it is chosen, parsing runs it and sets *exit_code. Console and exit_code
// must outlive the parse.
#pragma once

#include "client/cli/console.h"

namespace CLI {
class App;
}

namespace neuroshard {

void AddPlanCommand(CLI::App& app, const Console& console, int* exit_code);
void AddEvaluateCommand(CLI::App& app, const Console& console, int* exit_code);
void AddEvalTasksCommand(CLI::App& app, const Console& console, int* exit_code);
void AddSweepCommand(CLI::App& app, const Console& console, int* exit_code);
void AddStoreCommand(CLI::App& app, const Console& console, int* exit_code);
void AddValidateCommand(CLI::App& app, const Console& console, int* exit_code);
void AddPredictCommand(CLI::App& app, const Console& console, int* exit_code);
void AddDevicesCommand(CLI::App& app, const Console& console, int* exit_code);
void AddDiffCommand(CLI::App& app, const Console& console, int* exit_code);
void AddModelsCommand(CLI::App& app, const Console& console, int* exit_code);
void AddInitCommand(CLI::App& app, const Console& console, int* exit_code);
void AddDoctorCommand(CLI::App& app, const Console& console, int* exit_code);
void AddReportCommand(CLI::App& app, const Console& console, int* exit_code);
void AddCompletionCommand(CLI::App& app, const Console& console, int* exit_code);

// All commands of the program.
void AddCommands(CLI::App& app, const Console& console, int* exit_code);

// Parses and runs. Returns the exit code (exit_code.h). Help goes to console.out, usage errors to
// console.err.
int RunCommandLine(int argc, const char* const* argv, const Console& console);

}  // namespace neuroshard
