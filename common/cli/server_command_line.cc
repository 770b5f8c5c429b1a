#include "common/cli/server_command_line.h"

#include <iostream>
#include <vector>

#include "common/cli/exit_code.h"
#include "common/cli/option_values.h"
#include "common/observe/listen_address.h"
#include "common/observe/logger.h"

namespace neuroshard {
namespace {

std::string CheckListenAddress(const std::string& text) {
  const auto parsed = ParseListenAddress(text);
  return parsed.ok() ? std::string() : Message(parsed.status());
}

}  // namespace

void AddServerOptions(CLI::App& app, ServerCommandLine& line) {
  app.add_option("--config", line.config, "YAML file; those in configs/ list every option")
      ->type_name("FILE")
      // What an unset variable of a script leaves; without its file a server has other rules.
      ->check([](const std::string& text) {
        return text.empty() ? std::string("must name a file, got \"\"") : std::string();
      });
  app.add_option("--listen", line.listen,
                 "Address of the RPC server; port 0: choose one and print it")
      ->type_name("HOST:PORT")
      ->check(CheckListenAddress);
  app.add_option("--metrics", line.metrics,
                 "Address of http /metrics; port 0: choose one, \"\": none")
      ->type_name("HOST:PORT")
      ->check([](const std::string& text) {
        return text.empty() ? std::string() : CheckListenAddress(text);
      });
  app.add_option("--log-level", line.log_level, "What is written to stderr")
      ->check(OneOf({"debug", "info", "warn", "error", "off"}));
  app.add_option("--log-format", line.log_format, "key=value lines, or one JSON object a line")
      ->check(OneWordOf<LogFormat>());
  app.add_flag("--insecure", line.insecure,
               "Serve without TLS also where other hosts reach the address");
  app.add_flag("--check-config", line.check_config,
               "Only say what is wrong with the options, the file and the ports; start nothing");
}

std::optional<int> CheckServerStart(const std::string& program, const ServerCommandLine& line,
                                    const Status& read, const std::function<Violations()>& start) {
  if (read.ok() && !line.check_config) return std::nullopt;
  std::vector<std::string> faults;
  for (const Violation& fault : Violations::FromStatus(read)) {
    faults.push_back(fault.field + ": " + fault.description);
  }
  if (!read.ok() && faults.empty()) faults.push_back(Message(read));
  const Violations of_start = start();
  for (const Violation& fault : of_start.kept()) {
    faults.push_back(fault.field + ": " + fault.description);
  }
  if (faults.empty()) {
    std::cout << program << " could start with these options\n";
    return kExitSuccess;
  }
  std::cerr << program << ": " << faults.size() << (faults.size() == 1 ? " fault" : " faults")
            << '\n';
  for (const std::string& fault : faults) std::cerr << "  " << fault << '\n';
  return kExitUsage;
}

void ReloadLogLevel(const std::string& config, const Logger& logger) {
  if (config.empty()) return;
  StatusOr<ConfigReader> file = ConfigReader::FromFile(config);
  std::string level;
  if (file.ok()) file->Read("log_level", &level);
  if (level.empty()) return;
  if (logger.SetLevel(level)) {
    logger.Audit("log_level_set", {{"level", level}});
  } else {
    logger.Error("log_level_unknown", {{"level", level}, {"file", config}});
  }
}

}  // namespace neuroshard
