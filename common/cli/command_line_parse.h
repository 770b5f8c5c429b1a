// Parsing the command lines of our programs: the same --help, --version, suggestions and exit codes
// for all of them.
#pragma once

#include <CLI/CLI.hpp>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace neuroshard {

// Parses, which runs the callbacks of the command that is chosen. Gives `app` and its commands
// --version and a help of eighty columns. A variable of the environment
// stands in for an option of the chosen command that is not given, and for no other. Returns the
// exit code (exit_code.h) when the process is to end: after --help or --version, on `out`, or a
// usage error, on `err`. A misspelt command or option is told which was meant. Exceptions of
// callbacks pass through, but for CLI11's.
std::optional<int> ParseCommandLine(CLI::App& app, int argc, const char* const* argv,
                                    std::ostream& out, std::ostream& err);

// Commands right below `app`.
std::vector<const CLI::App*> CommandsOf(const CLI::App& app);

// The words that an option's OneOf allows ("table", "json"); none: anything.
std::vector<std::string> WordsOf(const CLI::Option& option);

}  // namespace neuroshard
