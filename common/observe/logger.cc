#include "common/observe/logger.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <ostream>
#include <random>
#include <utility>

namespace neuroshard {
namespace {

constexpr std::size_t kMaxValueBytes = 2000;
constexpr std::string_view kLevels[] = {"debug", "info", "warn", "error", "off"};

bool NeedsQuotes(std::string_view text) {
  if (text.empty()) return true;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) {
      return true;
    }
  }
  return false;
}

void AppendValue(std::string_view text, std::string& line) {
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
    } else if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      line += c;
    }
  }
  line += cut ? "...\"" : "\"";
}

std::string Line(std::string_view event, Logger::Fields fields) {
  std::string line(event);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    AppendValue(field.value, line);
  }
  return line;
}

std::shared_ptr<spdlog::logger> MakeSink(spdlog::sink_ptr sink, spdlog::level::level_enum level) {
  auto logger = std::make_shared<spdlog::logger>("neuroshard", std::move(sink));
  logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(
      "%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc));
  logger->set_level(level);
  logger->flush_on(spdlog::level::debug);
  return logger;
}

}  // namespace

void ReadLogOptions(ConfigReader& reader, LogOptions* options) {
  reader.Read("log_level", &options->level);
  for (const std::string_view level : kLevels) {
    if (options->level == level) return;
  }
  reader.AddViolation("log_level", fmt::format("must be one of debug, info, warn, error, off, got "
                                               "\"{}\"",
                                               options->level));
}

Logger::Logger(std::shared_ptr<spdlog::logger> sink) : sink_(std::move(sink)) {}
Logger::~Logger() = default;

StatusOr<std::unique_ptr<Logger>> Logger::Create(const LogOptions& options) {
  for (const std::string_view level : kLevels) {
    if (options.level != level) continue;
    return std::unique_ptr<Logger>(
        new Logger(MakeSink(std::make_shared<spdlog::sinks::stderr_sink_mt>(),
                            spdlog::level::from_str(options.level))));
  }
  return InvalidArgument("log_level must be one of debug, info, warn, error, off, got \"{}\"",
                         options.level);
}

std::unique_ptr<Logger> Logger::ToStream(std::ostream* out) {
  return std::unique_ptr<Logger>(new Logger(
      MakeSink(std::make_shared<spdlog::sinks::ostream_sink_mt>(*out), spdlog::level::debug)));
}

void Logger::Debug(std::string_view event, Fields fields) const {
  if (sink_->should_log(spdlog::level::debug)) sink_->debug("{}", Line(event, fields));
}
void Logger::Info(std::string_view event, Fields fields) const {
  if (sink_->should_log(spdlog::level::info)) sink_->info("{}", Line(event, fields));
}
void Logger::Warn(std::string_view event, Fields fields) const {
  if (sink_->should_log(spdlog::level::warn)) sink_->warn("{}", Line(event, fields));
}
void Logger::Error(std::string_view event, Fields fields) const {
  if (sink_->should_log(spdlog::level::err)) sink_->error("{}", Line(event, fields));
}

std::string MakeRequestId() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace neuroshard
