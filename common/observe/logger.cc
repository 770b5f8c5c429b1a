#include "common/observe/logger.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

namespace neuroshard {
namespace {

constexpr std::size_t kMaxValueBytes = 2000;

bool IsLevel(std::string_view text) {
  constexpr std::string_view kLevels[] = {"debug", "info", "warn", "error", "off"};
  return std::ranges::find(kLevels, text) != std::end(kLevels);
}

// The beginning of a line; its fields follow, in JSON with the closing brace.
constexpr char kTextPattern[] = "%Y-%m-%dT%H:%M:%S.%eZ %l %v";
constexpr char kJsonPattern[] = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})";

// Beyond ASCII there are other ends of lines, and controls that terminals obey.
bool IsPrintable(char c) { return c >= ' ' && c <= '~'; }

bool NeedsQuotes(std::string_view text) {
  if (text.empty()) return true;
  for (const char c : text) {
    if (!IsPrintable(c) || c == ' ' || c == '"' || c == '=' || c == '\\') return true;
  }
  return false;
}

void AppendText(std::string_view text, std::string& line) {
  const bool cut = text.size() > kMaxValueBytes;
  text = text.substr(0, kMaxValueBytes);
  if (!cut && !NeedsQuotes(text)) {
    line += text;
    return;
  }
  line += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (c == '\n') {
      line += "\\n";
    } else if (!IsPrintable(c)) {
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      line += c;
    }
  }
  line += cut ? "...\"" : "\"";
}

std::string JsonString(std::string_view text) {
  std::string shown(text.substr(0, kMaxValueBytes));
  if (text.size() > kMaxValueBytes) shown += "...";
  // The text is ASCII, since some readers take U+2028 for the end of a line.
  return nlohmann::json(std::move(shown))
      .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

void Append(LogFormat format, const LogField& field, std::string& line) {
  if (format == LogFormat::kJson) {
    line += fmt::format(",\"{}\":", field.key);
    line += field.is_json ? field.value : JsonString(field.value);
    return;
  }
  line += ' ';
  line += field.key;
  line += '=';
  AppendText(field.value, line);
}

}  // namespace

// Where lines go, and which.
class Logger::Sink {
 public:
  Sink(spdlog::sink_ptr sink, spdlog::level::level_enum least, LogFormat format)
      : least_(least), format_(format), out_("neuroshard", std::move(sink)) {
    out_.set_formatter(std::make_unique<spdlog::pattern_formatter>(
        format == LogFormat::kJson ? kJsonPattern : kTextPattern, spdlog::pattern_time_type::utc));
    out_.set_level(spdlog::level::debug);
    out_.flush_on(spdlog::level::debug);
  }

  LogFormat format() const { return format_; }
  bool Writes(spdlog::level::level_enum level) const { return level >= least_.load(); }
  bool off() const { return least_.load() == spdlog::level::off; }
  void SetLevel(spdlog::level::level_enum least) const { least_.store(least); }

  // Where this level is written.
  void WriteIf(spdlog::level::level_enum level, std::string_view event, std::string_view context,
               Fields fields) const {
    if (Writes(level)) Write(level, event, context, fields);
  }
  void Write(spdlog::level::level_enum level, std::string_view event, std::string_view context,
             Fields fields, Fields last = {}) const {
    std::string line =
        format_ == LogFormat::kJson ? fmt::format("\"event\":\"{}\"", event) : std::string(event);
    line += context;
    for (const Fields& some : {fields, last}) {
      for (const LogField& field : some) Append(format_, field, line);
    }
    out_.log(level, "{}", line);
  }

 private:
  mutable std::atomic<spdlog::level::level_enum> least_;
  const LogFormat format_;
  mutable spdlog::logger out_;  // thread-safe
};

void ReadLogOptions(ConfigReader& reader, LogOptions* options) {
  reader.ReadWord("log_format", &options->format);
  reader.Read("log_level", &options->level);
  if (IsLevel(options->level)) return;
  reader.AddViolation("log_level", "must be one of debug, info, warn, error, off, got \"{}\"",
                      options->level);
}

StatusOr<std::unique_ptr<Logger>> Logger::Create(const LogOptions& options) {
  if (!IsLevel(options.level)) {
    return InvalidArgument("log_level must be one of debug, info, warn, error, off, got \"{}\"",
                           options.level);
  }
  return std::unique_ptr<Logger>(new Logger(
      std::make_shared<const Sink>(std::make_shared<spdlog::sinks::stderr_sink_mt>(),
                                   spdlog::level::from_str(options.level), options.format)));
}

std::unique_ptr<Logger> Logger::ToStream(std::ostream* out, LogFormat format) {
  return std::unique_ptr<Logger>(new Logger(std::make_shared<const Sink>(
      std::make_shared<spdlog::sinks::ostream_sink_mt>(*out), spdlog::level::debug, format)));
}

Logger Logger::With(Fields fields) const {
  Logger logger = *this;
  for (const LogField& field : fields) Append(sink_->format(), field, logger.context_);
  return logger;
}

void Logger::Debug(std::string_view event, Fields fields) const {
  sink_->WriteIf(spdlog::level::debug, event, context_, fields);
}
void Logger::Info(std::string_view event, Fields fields) const {
  sink_->WriteIf(spdlog::level::info, event, context_, fields);
}
void Logger::Warn(std::string_view event, Fields fields) const {
  sink_->WriteIf(spdlog::level::warn, event, context_, fields);
}
void Logger::Error(std::string_view event, Fields fields) const {
  sink_->WriteIf(spdlog::level::err, event, context_, fields);
}
bool Logger::WritesDebug() const { return sink_->Writes(spdlog::level::debug); }
bool Logger::WritesInfo() const { return sink_->Writes(spdlog::level::info); }
bool Logger::WritesError() const { return sink_->Writes(spdlog::level::err); }
bool Logger::SetLevel(std::string_view level) const {
  if (!IsLevel(level)) return false;
  sink_->SetLevel(spdlog::level::from_str(std::string(level)));
  return true;
}
void Logger::Audit(std::string_view event, Fields fields) const {
  if (sink_->off()) return;
  sink_->Write(spdlog::level::info, event, context_, fields, {{"audit", true}});
}

}  // namespace neuroshard
