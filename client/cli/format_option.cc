#include "client/cli/format_option.h"

#include <CLI/CLI.hpp>

#include "common/cli/option_values.h"

namespace neuroshard {

void AddFormatOption(CLI::App& command, std::string& format, const std::string& description) {
  format = "table";
  command.add_option("--format", format, description)
      ->check(OneOf({"table", "json"}))
      ->capture_default_str();
}

void AddWideOption(CLI::App& command, Detail& detail) {
  command.add_flag_callback(
      "--wide", [&detail] { detail = Detail::kWide; },
      "All columns of the table, and lines as long as they get");
}

}  // namespace neuroshard
