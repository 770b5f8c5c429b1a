#include "client/cli/format_option.h"

#include <CLI/CLI.hpp>

namespace neuroshard {

void AddFormatOption(CLI::App& command, std::string& format, const std::string& description) {
  format = "table";
  command.add_option("--format", format, description)
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
}

}  // namespace neuroshard
