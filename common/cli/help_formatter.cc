#include "common/cli/help_formatter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <map>
#include <vector>

#include "common/base/wrapped_text.h"
#include "common/cli/command_line_parse.h"

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

namespace {

// Text as troff prints it: nothing of it is a request or an escape.
std::string Plain(const std::string& text) {
  std::string plain;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) plain += "\\&";
    line_begins = c == '\n';
    switch (c) {
      case '\\':
        plain += "\\e";
        break;
      case '-':
        plain += "\\-";
        break;
      case '\'':
        plain += "\\(aq";
        break;
      case '`':
        plain += "\\(ga";
        break;
      case '^':
        plain += "\\(ha";
        break;
      case '~':
        plain += "\\(ti";
        break;
      default:
        plain += c;
    }
  }
  return plain;
}

// "\fB\-\-format\fR \fITEXT\fR", or the name alone of what has no dashes.
std::string Heading(const CLI::Option& option) {
  if (option.get_positional()) return "\\fI" + Plain(option.get_name(true)) + "\\fR";
  std::string names;
  for (const std::string& name : option.get_snames())
    names += "\\fB" + Plain("-" + name) + "\\fR, ";
  for (const std::string& name : option.get_lnames()) {
    names += "\\fB" + Plain("--" + name) + "\\fR, ";
  }
  names.resize(names.size() - 2);
  const std::string type = option.get_type_name();
  if (option.get_type_size() == 0 || type.empty()) return names;
  return names + " \\fI" + Plain(type.substr(0, type.find(":{"))) + "\\fR";
}

// Options of `app` as .TP paragraphs; --help and --version are said once, of the program.
std::string Options(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    if (app.get_parent() != nullptr && option == app.get_help_ptr()) continue;
    text += fmt::format(".TP\n{}\n{}\n", Heading(*option), Plain(HelpFormatter::Meaning(*option)));
  }
  return text;
}

// What may stand behind the name of `app`.
std::string Usage(const CLI::App& app) {
  std::string usage = " [\\fIOPTIONS\\fR]";
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = Plain(option->get_name(true));
    usage += option->get_required() ? " \\fI" + name + "\\fR" : " [\\fI" + name + "\\fR]";
  }
  return usage + (CommandsOf(app).empty() ? "" : " \\fICOMMAND\\fR");
}

void AddCommands(const CLI::App& app, const std::string& path, std::string& text) {
  for (const CLI::App* command : CommandsOf(app)) {
    const std::string name = path + ' ' + command->get_name();
    text += fmt::format(".SS \\fB{}\\fR{}\n{}\n", Plain(name), Usage(*command),
                        Plain(command->get_description()));
    text += Options(*command);
    if (!command->get_footer().empty()) text += ".PP\n" + Plain(command->get_footer()) + '\n';
    AddCommands(*command, name, text);
  }
}

// Variables of all commands, with the options that they stand for.
void AddVariables(const CLI::App& app, std::map<std::string, std::string>& variables) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_envname().empty()) {
      variables.emplace(option->get_envname(), "Stands in for " + option->get_name());
    }
  }
  for (const CLI::App* command : CommandsOf(app)) AddVariables(*command, variables);
}

// "Plans tables. And more." -> "plans tables", for what whatis(1) lists.
std::string Summary(const CLI::App& app) {
  std::string text = app.get_description();
  if (text.starts_with("NeuroShard ")) text = text.substr(text.find(": ") + 2);
  text = text.substr(0, text.find(". "));
  if (text.ends_with('.')) text.pop_back();
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace

std::string ManualPage(const CLI::App& app, const std::string& version) {
  const std::string name = app.get_name();
  std::string title = name;
  for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  std::string text = fmt::format(
      ".TH {} 1 \"\" \"neuroshard {}\" \"NeuroShard\"\n.nh\n.ad l\n"
      ".SH NAME\n{} \\- {}\n.SH SYNOPSIS\n\\fB{}\\fR{}\n.SH DESCRIPTION\n{}\n.SH OPTIONS\n{}",
      Plain(title), version, Plain(name), Plain(Summary(app)), Plain(name), Usage(app),
      Plain(app.get_description()), Options(app));
  std::string commands;
  AddCommands(app, name, commands);
  if (!commands.empty()) text += ".SH COMMANDS\n" + commands;
  std::map<std::string, std::string> variables;
  AddVariables(app, variables);
  if (!variables.empty()) text += ".SH ENVIRONMENT\n";
  for (const auto& [variable, meaning] : variables) {
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", variable, Plain(meaning));
  }
  if (!app.get_footer().empty()) text += ".SH EXIT STATUS\n" + Plain(app.get_footer()) + '\n';
  return text;
}

}  // namespace neuroshard
