#include "common/cli/command_line_parse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/build_info.h"
#include "common/base/printable_text.h"
#include "common/base/similar_word.h"
#include "common/cli/exit_code.h"
#include "common/cli/help_formatter.h"

namespace neuroshard {

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

namespace {

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

template <typename List, typename Text>
std::vector<std::string> Names(const List& list, const Text& text) {
  std::vector<std::string> names;
  for (const auto* item : list) names.push_back(text(*item));
  return names;
}

std::string Suggestion(std::string_view text, const std::vector<std::string>& words) {
  return DidYouMean(text, std::vector<std::string_view>(words.begin(), words.end()));
}

// The command that `argv` names, and where its own arguments begin.
struct Chosen {
  const CLI::App* app;
  int next;
};

Chosen Choose(const CLI::App& app, int argc, const char* const* argv) {
  Chosen chosen{&app, 1};
  while (chosen.next < argc) {
    const auto commands = CommandsOf(*chosen.app);
    const auto found = std::find_if(commands.begin(), commands.end(), [&](const CLI::App* command) {
      return command->get_name() == argv[chosen.next];
    });
    if (found == commands.end()) break;
    chosen = {*found, chosen.next + 1};
  }
  return chosen;
}

// What is wrong with a word where the name of a command belongs; empty: nothing.
std::string WhyNoCommand(const Chosen& chosen, int argc, const char* const* argv) {
  if (chosen.app->get_require_subcommand_min() == 0) return "";
  const std::string name = NameOf(*chosen.app);
  const auto commands =
      Names(CommandsOf(*chosen.app), [](const CLI::App& app) { return app.get_name(); });
  if (chosen.next == argc) {
    return fmt::format("{} needs a command: {}", name, fmt::join(commands, ", "));
  }
  const std::string_view word = argv[chosen.next];
  if (word.starts_with('-')) return "";
  return fmt::format("{} is no command of {}{}; there are {}", Quoted(word), name,
                     Suggestion(word, commands), fmt::join(commands, ", "));
}

// The first argument that looks like an option and is none of the command; empty: there is none.
std::string WhyNoOption(const Chosen& chosen, int argc, const char* const* argv) {
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

// Of the environment, where they are nearly variables of the program. Others with its prefix are
// of other programs: Kubernetes sets NEUROSHARD_PLANNER_SERVICE_HOST.
void WarnOfMisspeltVariables(const CLI::App& app, std::ostream& err) {
  std::set<std::string> known;
  ListVariables(app, known);
  if (known.empty()) return;
  const std::string prefix = known.begin()->substr(0, known.begin()->find('_') + 1);
  std::vector<std::string_view> words;
  for (const std::string& name : known) {
    words.push_back(std::string_view(name).substr(prefix.size()));
  }
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

std::optional<int> ParseCommandLine(CLI::App& app, int argc, const char* const* argv,
                                    std::ostream& out, std::ostream& err) {
  Prepare(app, std::make_shared<HelpFormatter>(), true);
  // For whoever makes packages; --help does not show it.
  if (argc == 2 && std::string_view(argv[1]) == "--man") {
    out << ManualPage(app, BuildVersion());
    return kExitSuccess;
  }
  WarnOfMisspeltVariables(app, err);
  const Chosen chosen = Choose(app, argc, argv);
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
