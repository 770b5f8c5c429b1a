// `neuroshard ARGUMENTS` as a function.
#pragma once

#include "client/cli/console.h"

namespace neuroshard {

// Returns the exit code (exit_code.h). Help goes to console.out, usage errors to console.err.
int RunCommandLine(int argc, const char* const* argv, const Console& console);

}  // namespace neuroshard
