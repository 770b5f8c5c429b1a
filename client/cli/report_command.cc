#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "common/cli/exit_code.h"

namespace neuroshard {

// Drawing is the Python package's: its command takes the place of this process.
void AddReportCommand(CLI::App& app, const Console& console, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "report", "Draw a plan or a cost model as one HTML file (neuroshard-report)");
  command->prefix_command();
  command->footer("Arguments: those of neuroshard-report, of the Python package.");
  command->callback([command, &console, exit_code] {
    std::vector<std::string> arguments = command->remaining();
    arguments.insert(arguments.begin(), "neuroshard-report");
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    console.out.flush();
    execvp(pointers.front(), pointers.data());
    console.err << fmt::format(
        "error: cannot run neuroshard-report: {}; the Python package brings it: pip install "
        "./client/python\n",
        std::strerror(errno));
    *exit_code = kExitFailure;
  });
}

}  // namespace neuroshard
