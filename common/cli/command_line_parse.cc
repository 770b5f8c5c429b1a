#include "common/cli/command_line_parse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <set>
#include <string_view>

#include "common/base/build_info.h"
#include "common/base/positions.h"
#include "common/base/printable_text.h"
#include "common/base/similar_word.h"
#include "common/cli/exit_code.h"

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

// What an option does, and behind it its words, default and variable.
std::string Meaning(const CLI::Option& option) {
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

// --help in eighty columns: options at the left, what they mean at the right, wrapped; behind it
// the words that an option takes, its default and the environment variable that stands in for it.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string left = make_option_name(option, is_positional);
    const std::string type = option->get_type_name();
    if (!is_positional && option->get_type_size() != 0 && !type.empty()) {
      left += ' ' + type.substr(0, WordsBegin(type));
    }
    return Entry(left, Meaning(*option));
  }

  std::string make_subcommand(const CLI::App* command) const override {
    return Entry(command->get_name(), command->get_description());
  }

  std::string make_description(const CLI::App* app) const override {
    const std::string text = app->get_description();
    return text.empty() ? "" : Wrapped(text, kTextColumns, 0) + '\n';
  }

  std::string make_footer(const CLI::App* app) const override {
    const std::string text = app->get_footer();
    return text.empty() ? "" : Wrapped(text, kTextColumns, 0) + '\n';
  }
};

void Prepare(CLI::App& app, const std::shared_ptr<HelpFormatter>& formatter, bool is_program) {
  app.formatter(formatter);
  if (app.get_option_no_throw("--version") == nullptr) {
    CLI::Option* version = app.set_version_flag("--version", BuildText(), "Print the version");
    if (!is_program) version->group("");  // once is enough
  }
  app.get_help_ptr()->description("Print this help");
  // An empty value, as a script's unset variable leaves it, is no absent option, but where the
  // description says what it is.
  for (CLI::Option* option : app.get_options([](CLI::Option*) { return true; })) {
    const bool may_be_empty = option->get_description().find("\"\"") != std::string::npos;
    if (option->get_items_expected_max() == 0 || may_be_empty) continue;
    option->check([](const std::string& text) {
      return text.empty() ? std::string("must not be empty, got \"\"") : std::string();
    });
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    Prepare(*command, formatter, false);
  }
}

// "neuroshard models show".
std::string NameOf(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : NameOf(*app.get_parent()) + ' ' + app.get_name();
}

std::string Suggestion(std::string_view text, const std::vector<std::string>& words) {
  return DidYouMean(text, std::vector<std::string_view>(words.begin(), words.end()));
}

// The command that `argv` names, and where its own arguments begin.
struct ChosenCommand {
  const CLI::App* app;
  int next;
};

ChosenCommand Choose(const CLI::App& app, int argc, const char* const* argv) {
  ChosenCommand chosen{&app, 1};
  while (chosen.next < argc) {
    const auto commands = CommandsOf(*chosen.app);
    const auto found = std::ranges::find_if(commands, [&](const CLI::App* command) {
      return command->get_name() == argv[chosen.next];
    });
    if (found == commands.end()) break;
    chosen = {*found, chosen.next + 1};
  }
  return chosen;
}

// What is wrong with a word where the name of a command belongs; empty: nothing.
std::string WhyNoCommand(const ChosenCommand& chosen, int argc, const char* const* argv) {
  if (chosen.app->get_require_subcommand_min() == 0) return "";
  const std::string name = NameOf(*chosen.app);
  const auto commands = Mapped<std::string>(CommandsOf(*chosen.app),
                                            [](const CLI::App* app) { return app->get_name(); });
  if (chosen.next == argc) {
    return fmt::format("{} needs a command: {}", name, fmt::join(commands, ", "));
  }
  const std::string_view word = argv[chosen.next];
  if (word.starts_with('-')) return "";
  return fmt::format("{} is no command of {}{}; there are {}", Quoted(word), name,
                     Suggestion(word, commands), fmt::join(commands, ", "));
}

// The first argument that looks like an option and is none of the command; empty: there is none.
std::string WhyNoOption(const ChosenCommand& chosen, int argc, const char* const* argv) {
  std::vector<std::string> shown;
  for (const CLI::Option* option : chosen.app->get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) shown.push_back("--" + name);
  }
  for (int i = chosen.next; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--") return "";
    if (!argument.starts_with("--")) continue;
    const std::string name(argument.substr(0, argument.find('=')));
    if (chosen.app->get_option_no_throw(name) != nullptr) continue;
    return fmt::format("{} has no option {}{}", NameOf(*chosen.app), Quoted(name),
                       Suggestion(name, shown));
  }
  return "";
}

// The variable of the environment that a wrong value is from; empty: it is from the command line.
std::string Variable(const CLI::App& app, const std::string& message) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string& name = option->get_envname();
    if (!name.empty() && message.starts_with(option->get_name() + ":") &&
        std::getenv(name.c_str()) != nullptr) {
      return name;
    }
  }
  return "";
}

// CLI11 gives variables of the environment to the options of all commands, also of those that are
// not chosen. Where commands share a C++ variable, another's option would overwrite what was given
// to the one that is, so only `path`, the chosen command and those that it is below, keeps them.
void ForgetOtherVariables(CLI::App& app, const std::set<const CLI::App*>& path) {
  // A group of options has no name and belongs to its command.
  const bool chosen = path.contains(app.get_name().empty() ? app.get_parent() : &app);
  for (CLI::Option* option : app.get_options([](CLI::Option*) { return true; })) {
    if (!chosen) option->envname("");
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    ForgetOtherVariables(*command, path);
  }
}

void ListVariables(const CLI::App& app, std::set<std::string>& names) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_envname().empty()) names.insert(option->get_envname());
  }
  for (const CLI::App* command : CommandsOf(app)) ListVariables(*command, names);
}

// Warns of variables of the environment that are nearly variables of the program. Others with its
// prefix are of other programs: Kubernetes sets NEUROSHARD_PLANNER_SERVICE_HOST.
void WarnOfMisspeltVariables(const CLI::App& app, std::ostream& err) {
  std::set<std::string> known;
  ListVariables(app, known);
  if (known.empty()) return;
  const std::string prefix = known.begin()->substr(0, known.begin()->find('_') + 1);
  const std::vector<std::string_view> words = Mapped<std::string_view>(
      known, [&](const std::string& name) { return std::string_view(name).substr(prefix.size()); });
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string name(text.substr(0, text.find('=')));
    if (!name.starts_with(prefix) || known.contains(name)) continue;
    const std::string meant = SimilarWord(std::string_view(name).substr(prefix.size()), words);
    if (meant.empty()) continue;
    err << "warning: the variable " << name << " is not read; did you mean " << prefix << meant
        << "?\n";
  }
}

}  // namespace

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> WordsOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = WordsBegin(type);
  if (begin == std::string::npos) return {};
  const std::size_t end = type.find('}', begin);
  return CLI::detail::split(type.substr(begin + 2, end - begin - 2), ',');
}

std::optional<int> ParseCommandLine(CLI::App& app, int argc, const char* const* argv,
                                    std::ostream& out, std::ostream& err) {
  Prepare(app, std::make_shared<HelpFormatter>(), true);
  WarnOfMisspeltVariables(app, err);
  const ChosenCommand chosen = Choose(app, argc, argv);
  std::set<const CLI::App*> path;
  for (const CLI::App* at = chosen.app; at != nullptr; at = at->get_parent()) path.insert(at);
  ForgetOtherVariables(app, path);
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& success) {
    app.exit(success, out, err);
    return kExitSuccess;
  } catch (const CLI::ParseError& error) {
    std::string what = WhyNoCommand(chosen, argc, argv);
    if (what.empty()) what = WhyNoOption(chosen, argc, argv);
    if (what.empty()) {
      what = error.what();
      const std::string variable = Variable(*chosen.app, what);
      const bool given = std::any_of(argv + chosen.next, argv + argc, [&](std::string_view word) {
        return what.starts_with(std::string(word.substr(0, word.find('='))) + ":");
      });
      if (!variable.empty() && !given) what += fmt::format(" (from {})", variable);
    }
    err << what << "\nRun `" << NameOf(*chosen.app) << " --help` for more information.\n";
    return kExitUsage;
  }
}

}  // namespace neuroshard
