#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/format_option.h"
#include "client/cli/health_check.h"
#include "client/cli/option_check.h"
#include "client/cli/planner_options.h"
#include "client/cli/text_table.h"
#include "client/cli/worker_options.h"
#include "common/cli/exit_code.h"

namespace neuroshard {
namespace {

struct DoctorOptions {
  PlannerOptions planner{.timeout_s = 5};
  std::vector<std::string> workers;
  std::vector<std::string> stores;
  std::string format;
  Detail detail = Detail::kShort;
};

const char* Text(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kNote:
      return "note";
    case Health::kFailure:
      return "FAIL";
  }
  return "?";
}

std::string AsTable(const std::vector<Finding>& findings, const TextStyle& style) {
  constexpr auto kLeft = TextTable::Align::kLeft;
  TextTable table({{"", kLeft}, {"check", kLeft}, {"of", kLeft}, {"found", kLeft}});
  for (const Finding& finding : findings) {
    table.AddRow(
        {Text(finding.health), finding.check, finding.subject,
         finding.what + (finding.remedy.empty() ? "" : " -> " + finding.remedy)},
        finding.health == Health::kFailure ? TextTable::Mark::kRed : TextTable::Mark::kNone);
  }
  return table.ToString(style);
}

std::string AsJson(const std::vector<Finding>& findings, bool healthy) {
  auto checks = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    checks.push_back(
        {{"check", finding.check},
         {"subject", finding.subject},
         {"status", finding.health == Health::kFailure ? "fail" : Text(finding.health)},
         {"message", finding.what},
         {"remedy", finding.remedy}});
  }
  return nlohmann::ordered_json{{"healthy", healthy}, {"checks", checks}}.dump(
             2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         '\n';
}

int RunDoctor(const DoctorOptions& options, const Console& console) {
  CallPolicy policy = options.planner.policy(console.err);
  policy.max_attempts = 1;  // a server that is hard to reach is what a person wants to hear of
  std::vector<Finding> findings = CheckPlanner(options.planner.address, policy);
  const auto add = [&](const std::vector<Finding>& more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  add(CheckWorkers(options.workers, policy));
  add(CheckTls(options.planner.tls));
  for (const std::string& store : options.stores) add(CheckStore(store));
  add(CheckPorts());
  const bool healthy = std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.health == Health::kFailure;
  });
  const int written =
      WriteResult(console, "",
                  options.format == "json" ? AsJson(findings, healthy)
                                           : AsTable(findings, console.Style(options.detail)));
  return healthy ? written : kExitFailure;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor",
      "Check planner, workers, stores and ports, and say what to do; exit 1 on a failure");
  AddPlannerOptions(*command, options->planner);
  AddWorkersOption(*command, options->workers)->required(false);
  command->add_option("--store", options->stores, "Profile stores, comma-separated")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("FILE.db,...")
      ->envname("NEUROSHARD_STORE");
  AddFormatOption(*command, options->format);
  AddWideOption(*command, options->detail);
  command->callback([options, &console, exit_code] { *exit_code = RunDoctor(*options, console); });
}

}  // namespace neuroshard
