#include "client/cli/worker_options.h"

#include <CLI/CLI.hpp>
#include <set>

#include "client/cli/option_check.h"

namespace neuroshard {

CLI::Option* AddWorkersOption(CLI::App& command, std::vector<std::string>& workers) {
  return command.add_option("--workers", workers, "Workers to measure on, comma-separated")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("HOST:PORT,...")
      ->transform([](std::string text) { return CLI::detail::trim(text); })
      ->check(CheckAddress)
      ->envname("NEUROSHARD_WORKERS");
}

void CheckDistinctWorkers(const std::vector<std::string>& workers) {
  std::set<std::string> seen;
  for (const std::string& address : workers) {
    if (!seen.insert(address).second)
      throw CLI::ValidationError("--workers", address + " is listed more than once");
  }
}

}  // namespace neuroshard
