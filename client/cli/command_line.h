// `neuroshard ARGUMENTS` as a function.
#pragma once

#include "client/cli/console.h"

namespace CLI {
class App;
}

namespace neuroshard {

// All commands of the program, with callbacks that set `exit_code`. `console` outlives them.
void AddCommands(CLI::App& app, const Console& console, int* exit_code);

// Returns the exit code (exit_code.h). Help goes to console.out, usage errors to console.err.
int RunCommandLine(int argc, const char* const* argv, const Console& console);

}  // namespace neuroshard
