#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "client/cli/commands.h"

namespace {

// https://no-color.org: any value but none.
bool IsSet(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

int main(int argc, char** argv) {
  neuroshard::Console console{std::cout, std::cerr, isatty(STDERR_FILENO) == 1};
  winsize size{};
  if (isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
    const char* terminal = std::getenv("TERM");
    console.colour =
        !IsSet("NO_COLOR") && terminal != nullptr && std::string_view(terminal) != "dumb";
    if (size.ws_col > 0) console.columns = std::max<std::size_t>(size.ws_col, 40);
  }
  return neuroshard::RunCommandLine(argc, argv, console);
}
