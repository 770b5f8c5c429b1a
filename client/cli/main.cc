#include <unistd.h>

#include <iostream>

#include "client/cli/command_line.h"

int main(int argc, char** argv) {
  const neuroshard::Console console{std::cout, std::cerr, isatty(STDERR_FILENO) == 1};
  return neuroshard::RunCommandLine(argc, argv, console);
}
