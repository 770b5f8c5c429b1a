// What the command lines of our servers share.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "common/base/violations.h"
#include "common/observe/logger.h"

namespace neuroshard {

// Empty, or absent: not given.
struct ServerCommandLine {
  std::string config;
  std::string listen;
  std::optional<std::string> metrics;  // "" serves none
  std::string log_level;
  std::string log_format;
  bool insecure = false;
  bool check_config = false;
};

// --config, --listen, --metrics, --log-level, --log-format and --check-config. `line` must outlive
// the parse.
void AddServerOptions(CLI::App& app, ServerCommandLine& line);

// After the parse: `read` tells what is wrong with the file, `start` what else keeps the server
// from starting. Prints all faults at once when the file is wrong, or with --check-config, whatever
// it finds. Returns the exit code when the process is to end; otherwise nothing was asked of
// `start`.
std::optional<int> CheckServerStart(const std::string& program, const ServerCommandLine& line,
                                    const Status& read, const std::function<Violations()>& start);

// At SIGHUP: reads `log_level` of the file `config` again and says what it is now; where the file
// cannot be read, or states none that there is, it stays. Nothing for an empty `config`.
void ReloadLogLevel(const std::string& config, const Logger& logger);

}  // namespace neuroshard
