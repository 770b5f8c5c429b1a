#include "common/cli/server_command_line.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "common/cli/exit_code.h"
#include "common/cli/option_values.h"
#include "common/observe/listen_address.h"
#include "common/text/config_reader.h"

namespace neuroshard {
namespace {

std::string CheckListenAddress(const std::string& text) {
  const auto parsed = ParseListenAddress(text);
  return parsed.ok() ? std::string() : Message(parsed.status());
}

}  // namespace

void AddServerOptions(CLI::App& app, ServerCommandLine& line) {
  app.add_option("--config", line.config, "YAML file; those in configs/ list every option")
      ->type_name("FILE");
  app.add_option("--listen", line.listen,
                 "Address of the RPC server, or unix:/PATH; port 0: choose one and print it")
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
  std::vector<std::string> faults = Mapped<std::string>(
      Violations::FromStatus(read),
      [&](const Violation& fault) { return fault.field + ": " + fault.description; });
  if (!read.ok() && faults.empty()) faults.push_back(Message(read));
  const Violations of_start = start();
  for (const Violation& fault : of_start.kept()) {
    const std::string text = fault.field + ": " + fault.description;
    if (IsInUse(fault)) {
      std::cerr << program << ": note: " << text << '\n';
    } else {
      faults.push_back(text);
    }
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

int ReportFailedStart(const std::string& program, const LogOptions& options, const Status& why) {
  if (options.format == LogFormat::kJson) {
    (*Logger::Create({.level = "error", .format = options.format}))
        ->Error("start_failed", {{"reason", Message(why)}});
  } else {
    std::cerr << program << ": " << Message(why) << '\n';
  }
  return kExitFailure;
}

ConfigAtStart::ConfigAtStart(const ServerCommandLine& line)
    : file_(line.config),
      level_(line.log_level.empty() ? LogOptions().level : line.log_level),
      values_(Read(file_).value_or(Values())) {}

StatusOr<ConfigAtStart::Values> ConfigAtStart::Read(const std::string& file) {
  constexpr std::size_t kMaxValues = 100'000;
  Values values;
  if (file.empty()) return values;
  NS_ASSIGN_OR_RETURN(ConfigReader reader, ConfigReader::FromFile(file));
  for (const std::string& key : reader.keys()) {
    if (!reader.IsMapping(key)) {
      reader.Read(key, &values[key]);
      continue;
    }
    Values below;
    reader.ReadFlattened(key, kMaxValues, &below);
    for (auto& [path, value] : below) values[fmt::format("{}.{}", key, path)] = std::move(value);
  }
  return values;
}

void ConfigAtStart::ReloadLogLevel(const Logger& logger) const {
  auto now = Read(file_);
  if (!now.ok()) return logger.Error("config_unreadable", {{"reason", Message(now.status())}});
  const std::string level = now->contains("log_level") ? (*now)["log_level"] : level_;
  if (!logger.SetLevel(level)) {
    return logger.Error("log_level_unknown", {{"level", level}, {"file", file_}});
  }
  logger.Audit("log_level_set", {{"level", level}});
  Values before = values_;
  before.erase("log_level");
  now->erase("log_level");
  // A key that is gone as well as one that is new.
  std::vector<Values::value_type> changed;
  std::set_symmetric_difference(before.begin(), before.end(), now->begin(), now->end(),
                                std::back_inserter(changed));
  std::set<std::string> keys;
  for (const auto& [key, value] : changed) keys.insert(key);
  if (keys.empty()) return;
  logger.Warn("restart_needed", {{"keys", fmt::format("{}", fmt::join(keys, ", "))}});
}

}  // namespace neuroshard
