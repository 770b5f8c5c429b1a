// --help in eighty columns, and the manual page.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace neuroshard {

// Options at the left, what they mean at the right, wrapped; behind it the words that an option
// takes, its default and the environment variable that stands in for it.
class HelpFormatter final : public CLI::Formatter {
 public:
  // What an option does, and behind it its words, default and variable.
  static std::string Meaning(const CLI::Option& option);

  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_footer(const CLI::App* app) const override;
};

// The words that an option's OneOf allows ("table", "json"); none: anything.
std::vector<std::string> WordsOf(const CLI::Option& option);

// The manual page of a program, from the description of its command line: man(7)'s macros, section 1,
// every command and option that --help shows, the environment and the exit codes. The same text
// every time: it has a version and no date.
std::string ManualPage(const CLI::App& app, const std::string& version);

}  // namespace neuroshard
