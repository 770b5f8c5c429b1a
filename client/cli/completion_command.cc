#include <absl/strings/str_replace.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "common/base/positions.h"
#include "common/cli/command_line_parse.h"
#include "common/cli/option_values.h"

namespace neuroshard {
namespace {

// Calls visit(command, path) for `app` and the commands below it, parents first; a path is
// "neuroshard models".
void ForEachCommand(const CLI::App& app, const std::string& parent,
                    const std::function<void(const CLI::App&, const std::string&)>& visit) {
  const std::string path = parent + app.get_name();
  visit(app, path);
  for (const CLI::App* child : CommandsOf(app)) ForEachCommand(*child, path + ' ', visit);
}

// Calls visit(name, option) for the options of a command that --help shows; a name is "--format".
template <typename Visit>
void ForEachOption(const CLI::App& command, const Visit& visit) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) visit("--" + name, *option);
  }
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::string Quote(const std::string& text) {
  return "'" + absl::StrReplaceAll(text, {{"'", "'\\''"}}) + "'";
}

// One function that finds the command and then what may stand behind it; where it knows nothing,
// the shell offers files.
std::string BashScript(const CLI::App& app) {
  std::vector<std::string> paths;
  std::string values;
  std::string words;
  ForEachCommand(app, "", [&](const CLI::App& command, const std::string& path) {
    if (&command != &app) paths.push_back(Quote(path));
    std::vector<std::string> options;
    ForEachOption(command, [&](const std::string& name, const CLI::Option& option) {
      options.push_back(name);
      if (!TakesValue(option)) return;
      values += fmt::format("    {}) words={}; known=1 ;;\n", Quote(path + ' ' + name),
                            Quote(fmt::format("{}", fmt::join(WordsOf(option), " "))));
    });
    const auto commands = Mapped<std::string>(
        CommandsOf(command), [](const CLI::App* child) { return child->get_name(); });
    words += fmt::format("    {}) [[ $cur == -* ]] && words={} || words={} ;;\n", Quote(path),
                         Quote(fmt::format("{}", fmt::join(options, " "))),
                         Quote(fmt::format("{}", fmt::join(commands, " "))));
  });
  return fmt::format(R"sh(_neuroshard() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} path=neuroshard words= known= i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${{COMP_WORDS[i]}}" in
    {}) path="$path ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$path $prev" in
{}  esac
  [[ $known ]] || case "$path" in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _neuroshard neuroshard
)sh",
                     fmt::join(paths, " | "), values, words);
}

std::string FishScript(const CLI::App& app) {
  std::string script = R"sh(function __neuroshard_path
  set -l words (string match -v -- '-*' (commandline -opc)[2..-1])
  string join ' ' -- neuroshard $words
end
)sh";
  ForEachCommand(app, "", [&](const CLI::App& command, const std::string& path) {
    const std::string at = Quote(fmt::format("__neuroshard_path | string match -q -- '{}'", path));
    const std::string below =
        Quote(fmt::format("__neuroshard_path | string match -q -- '{}*'", path));
    for (const CLI::App* child : CommandsOf(command)) {
      script += fmt::format("complete -c neuroshard -f -n {} -a {} -d {}\n", at,
                            Quote(child->get_name()), Quote(child->get_description()));
    }
    ForEachOption(command, [&](const std::string& name, const CLI::Option& option) {
      script += fmt::format("complete -c neuroshard -n {} -l {} -d {}", below,
                            Quote(name.substr(2)), Quote(option.get_description()));
      if (const auto words = WordsOf(option); !words.empty()) {
        script += fmt::format(" -xa {}", Quote(fmt::format("{}", fmt::join(words, " "))));
      } else if (TakesValue(option)) {
        script += " -r";
      }
      script += '\n';
    });
  });
  return script;
}

std::string Script(const CLI::App& app, const std::string& shell) {
  if (shell == "fish") {
    return "# neuroshard completion fish | source\n" + FishScript(app);
  }
  if (shell == "zsh") {
    return "#compdef neuroshard\n# source <(neuroshard completion zsh)\n"
           "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n" +
           BashScript(app);
  }
  return "# source <(neuroshard completion bash)\n" + BashScript(app);
}

}  // namespace

void AddCompletionCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "Print a script that completes commands and options");
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(OneOf({"bash", "zsh", "fish"}));
  command->footer("For this shell: source <(neuroshard completion bash)");
  command->callback([shell, &app, &console, exit_code] {
    *exit_code = WriteResult(console, "", Script(app, *shell));
  });
}

}  // namespace neuroshard
