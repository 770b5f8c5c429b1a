#include <absl/strings/str_replace.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "common/cli/command_line_parse.h"
#include "common/cli/option_values.h"

namespace neuroshard {
namespace {

struct CompletedOption {
  std::string name;
  std::string description;
  bool takes_value = false;
  std::vector<std::string> words;  // that the value may be; none: anything
};

// A command, with what may stand behind it.
struct CompletedCommand {
  std::string path;  // "neuroshard models"
  std::string description;
  std::vector<std::string> commands;
  std::vector<CompletedOption> options;
};

// `app` and the commands below it, parents first. What --help does not show is left out.
void Collect(const CLI::App& app, const std::string& parent, std::vector<CompletedCommand>& all) {
  CompletedCommand command{parent + app.get_name(), app.get_description(), {}, {}};
  const std::vector<const CLI::App*> children = CommandsOf(app);
  for (const CLI::App* child : children) command.commands.push_back(child->get_name());
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) {
      command.options.push_back({"--" + name, option->get_description(),
                                 option->get_items_expected_max() > 0, WordsOf(*option)});
    }
  }
  all.push_back(command);
  for (const CLI::App* child : children) Collect(*child, command.path + ' ', all);
}

std::string Quote(const std::string& text) {
  return "'" + absl::StrReplaceAll(text, {{"'", "'\\''"}}) + "'";
}

// One function that finds the command and then what may stand behind it; where it knows nothing,
// the shell offers files.
std::string BashScript(const std::vector<CompletedCommand>& commands) {
  std::vector<std::string> paths;
  std::string values;
  std::string words;
  for (const CompletedCommand& command : commands) {
    if (&command != &commands.front()) paths.push_back(Quote(command.path));
    std::vector<std::string> options;
    for (const CompletedOption& option : command.options) {
      options.push_back(option.name);
      if (!option.takes_value) continue;
      values +=
          fmt::format("    {}) words={}; known=1 ;;\n", Quote(command.path + ' ' + option.name),
                      Quote(fmt::format("{}", fmt::join(option.words, " "))));
    }
    words += fmt::format("    {}) [[ $cur == -* ]] && words={} || words={} ;;\n",
                         Quote(command.path), Quote(fmt::format("{}", fmt::join(options, " "))),
                         Quote(fmt::format("{}", fmt::join(command.commands, " "))));
  }
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

std::string FishScript(const std::vector<CompletedCommand>& commands) {
  std::string script = R"sh(function __neuroshard_path
  set -l words (string match -v -- '-*' (commandline -opc)[2..-1])
  string join ' ' -- neuroshard $words
end
)sh";
  for (const CompletedCommand& command : commands) {
    const std::string at =
        Quote(fmt::format("__neuroshard_path | string match -q -- '{}'", command.path));
    const std::string below =
        Quote(fmt::format("__neuroshard_path | string match -q -- '{}*'", command.path));
    for (const CompletedCommand& child : commands) {
      if (child.path.rfind(' ') != command.path.size() || !child.path.starts_with(command.path))
        continue;
      script +=
          fmt::format("complete -c neuroshard -f -n {} -a {} -d {}\n", at,
                      Quote(child.path.substr(command.path.size() + 1)), Quote(child.description));
    }
    for (const CompletedOption& option : command.options) {
      script += fmt::format("complete -c neuroshard -n {} -l {} -d {}", below,
                            Quote(option.name.substr(2)), Quote(option.description));
      if (!option.words.empty()) {
        script += fmt::format(" -xa {}", Quote(fmt::format("{}", fmt::join(option.words, " "))));
      } else if (option.takes_value) {
        script += " -r";
      }
      script += '\n';
    }
  }
  return script;
}

std::string Script(const CLI::App& app, const std::string& shell) {
  std::vector<CompletedCommand> commands;
  Collect(app, "", commands);
  if (shell == "fish") {
    return "# neuroshard completion fish | source\n" + FishScript(commands);
  }
  if (shell == "zsh") {
    return "#compdef neuroshard\n# source <(neuroshard completion zsh)\n"
           "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n" +
           BashScript(commands);
  }
  return "# source <(neuroshard completion bash)\n" + BashScript(commands);
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
