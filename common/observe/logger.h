// Structured logs for the operator: one line an event on stderr, "2026-01-02T03:04:05.678Z info
// plan_made request_id=ab12 rpc=ShardPlan", or the same as a JSON object. common/README.md names
// the fields that mean the same in every event.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/base/status.h"
#include "common/domain/vocabulary.h"
#include "common/text/config_reader.h"

namespace neuroshard {

enum class LogFormat { kText, kJson };

NS_WORDS(LogFormat, {kText, "text"}, {kJson, "json"});

struct LogOptions {
  // The least severe level that is written: "debug", "info", "warn", "error" or "off".
  std::string level = "info";
  LogFormat format = LogFormat::kText;
};

// Keys `log_level` and `log_format` of `reader`.
void ReadLogOptions(ConfigReader& reader, LogOptions* options);

// One key and value of a log line. Anything that fmt can print is a value. In text, values with
// spaces, quotes or bytes that are no printable ASCII are quoted and escaped; in JSON, finite
// numbers and booleans are such and everything else is a string, in which bytes that are no UTF-8
// become U+FFFD. Long values are cut, so that a line is always one line and bounded.
struct LogField {
  template <typename T>
  LogField(std::string_view field_key, const T& field_value)
      : key(field_key), value(fmt::format("{}", field_value)) {
    if constexpr (std::is_floating_point_v<T>) {
      is_json = std::isfinite(field_value);
    } else {
      is_json = std::is_arithmetic_v<T> && !std::is_same_v<T, char>;
    }
  }
  LogField(std::string_view field_key, const Status& status)
      : key(field_key), value(status.ToString()) {}

  std::string_view key;
  std::string value;
  bool is_json = false;  // the value is JSON as it is
};

// Thread-safe; a copy writes to the same place. An event is a fixed snake_case word; what varies
// goes into fields.
//   logger.Info("model_loaded", {{"model", name}, {"version", version}});
class Logger {
 public:
  // INVALID_ARGUMENT when the level is not one of LogOptions::level. Writes to stderr.
  static StatusOr<std::unique_ptr<Logger>> Create(const LogOptions& options);
  // A logger for tests: everything from debug on goes into `out`, which must outlive it.
  static std::unique_ptr<Logger> ToStream(std::ostream* out, LogFormat format = LogFormat::kText);

  using Fields = std::initializer_list<LogField>;
  // One that begins every line with `fields`, after those of this one.
  Logger With(Fields fields) const;

  void Debug(std::string_view event, Fields fields = {}) const;
  void Info(std::string_view event, Fields fields = {}) const;
  void Warn(std::string_view event, Fields fields = {}) const;
  void Error(std::string_view event, Fields fields = {}) const;
  // Whether Debug, Info and Error write, for lines that are dear to make.
  bool WritesDebug() const;
  bool WritesInfo() const;
  bool WritesError() const;
  // What is written from now on, by all copies; `level` is one of LogOptions::level, else nothing
  // changes and the answer is false.
  bool SetLevel(std::string_view level) const;
  // Who did what to what others share, with audit=true: written whatever the level, but for "off".
  void Audit(std::string_view event, Fields fields) const;

 private:
  class Sink;
  explicit Logger(std::shared_ptr<const Sink> sink) : sink_(std::move(sink)) {}

  std::shared_ptr<const Sink> sink_;
  std::string context_;  // fields of With, as they are written
};

}  // namespace neuroshard
