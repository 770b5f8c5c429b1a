#include "common/cli/help_formatter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "common/base/wrapped_text.h"

namespace neuroshard {
namespace {

constexpr std::size_t kColumn = 26;

// "TEXT:{table,json}": the type, and the words behind it.
std::size_t WordsBegin(const std::string& type) { return type.find(":{"); }

std::string Entry(const std::string& left, const std::string& right) {
  const std::string indent(kColumn, ' ');
  std::string text = "  " + left;
  if (right.empty()) return text + '\n';
  text += text.size() + 2 > kColumn ? '\n' + indent : std::string(kColumn - text.size(), ' ');
  return text + Wrapped(right, kTextColumns, kColumn, kColumn) + '\n';
}

}  // namespace

std::vector<std::string> WordsOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = WordsBegin(type);
  if (begin == std::string::npos) return {};
  const std::size_t end = type.find('}', begin);
  return CLI::detail::split(type.substr(begin + 2, end - begin - 2), ',');
}

std::string HelpFormatter::Meaning(const CLI::Option& option) {
  std::vector<std::string> notes;
  const std::vector<std::string> words = WordsOf(option);
  if (!words.empty()) notes.push_back(fmt::format("one of {}", fmt::join(words, ", ")));
  if (const std::string value = option.get_default_str(); !value.empty()) {
    notes.push_back("default: " + value);
  }
  if (!option.get_envname().empty()) notes.push_back("environment: " + option.get_envname());
  if (option.get_required() && !option.get_positional()) notes.push_back("required");
  std::string text = option.get_description();
  if (!notes.empty())
    text += fmt::format("{}[{}]", text.empty() ? "" : " ", fmt::join(notes, "; "));
  return text;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string left = make_option_name(option, is_positional);
  const std::string type = option->get_type_name();
  if (!is_positional && option->get_type_size() != 0 && !type.empty()) {
    left += ' ' + type.substr(0, WordsBegin(type));
  }
  return Entry(left, Meaning(*option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return Entry(command->get_name(), command->get_description());
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  const std::string text = app->get_description();
  return text.empty() ? "" : Wrapped(text, kTextColumns, 0) + '\n';
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  const std::string text = app->get_footer();
  return text.empty() ? "" : Wrapped(text, kTextColumns, 0) + '\n';
}

}  // namespace neuroshard
