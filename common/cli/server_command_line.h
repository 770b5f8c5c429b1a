// The options that the command lines of our servers share.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "common/base/violations.h"
#include "common/observe/logger.h"

namespace neuroshard {

// The options that all our servers have. Empty, or absent: not given.
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

// Called after the parse. `read` tells what is wrong with the file, `start` what else keeps the
// server from starting. Prints all faults at once when the file is wrong, or with --check-config,
// whatever it finds; a port in use is a note there, since a server that is to be restarted has its
// own. Returns the exit code when the process is to end; otherwise nothing was asked of `start`.
std::optional<int> CheckServerStart(const std::string& program, const ServerCommandLine& line,
                                    const Status& read, const std::function<Violations()>& start);

// Says why a server does not start, in the format of its log; returns the exit code.
int ReportFailedStart(const std::string& program, const LogOptions& options, const Status& why);

// The file of --config as it was at the start, for SIGHUP.
class ConfigAtStart {
 public:
  ConfigAtStart() = default;
  explicit ConfigAtStart(const ServerCommandLine& line);

  // Reads `log_level` again, or that of the command line or the default where the file states none,
  // and logs what it is now, and which other keys have changed: they need a restart. A level that
  // there is not, and a file that cannot be read, change nothing.
  void ReloadLogLevel(const Logger& logger) const;

 private:
  using Values = std::map<std::string, std::string>;  // by dotted path
  static StatusOr<Values> Read(const std::string& file);

  std::string file_;  // empty: there is none
  std::string level_;
  Values values_;
};

}  // namespace neuroshard
