// Structured logs for the operator: one line an event on stderr, "2026-01-02T03:04:05.678Z info
// plan_served request_id=ab12 rpc=ShardPlan".
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/base/status.h"
#include "common/text/config_reader.h"

namespace spdlog {
class logger;
}  // namespace spdlog

namespace neuroshard {

// The least severe level that is written.
struct LogOptions {
  std::string level = "info";  // "debug", "info", "warn", "error" or "off"
};

// Key `log_level` of `reader`.
void ReadLogOptions(ConfigReader& reader, LogOptions* options);

// One key=value of a log line. Anything that fmt can print is a value; values with spaces, quotes
// or control characters are quoted and escaped, and long ones are cut, so that a line is always one
// line and bounded.
struct LogField {
  template <typename T>
  LogField(std::string_view field_key, const T& field_value)
      : key(field_key), value(fmt::format("{}", field_value)) {}
  LogField(std::string_view field_key, const Status& status)
      : key(field_key), value(status.ToString()) {}

  std::string_view key;
  std::string value;
};

// Thread-safe. An event is a fixed snake_case word; what varies goes into fields.
//   logger.Info("model_loaded", {{"model", name}, {"version", version}});
class Logger {
 public:
  // INVALID_ARGUMENT when the level is not one of LogOptions::level. Writes to stderr.
  static StatusOr<std::unique_ptr<Logger>> Create(const LogOptions& options);
  // For tests: everything from debug on, into `out`, which must outlive the logger.
  static std::unique_ptr<Logger> ToStream(std::ostream* out);
  ~Logger();

  using Fields = std::initializer_list<LogField>;
  void Debug(std::string_view event, Fields fields = {}) const;
  void Info(std::string_view event, Fields fields = {}) const;
  void Warn(std::string_view event, Fields fields = {}) const;
  void Error(std::string_view event, Fields fields = {}) const;

 private:
  explicit Logger(std::shared_ptr<spdlog::logger> sink);

  std::shared_ptr<spdlog::logger> sink_;
};

// A fresh id for a request whose caller gave none: 16 hexadecimal digits, random.
std::string MakeRequestId();

}  // namespace neuroshard
