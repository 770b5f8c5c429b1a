#include "client/cli/planner_options.h"

#include <CLI/CLI.hpp>

#include "client/cli/option_check.h"
#include "client/stub/model_reference.h"
#include "common/cli/option_values.h"

namespace neuroshard {

void OverrideModel(const std::string& model, v1::ShardPlanRequest& request) {
  if (model.empty()) return;
  *request.mutable_cost_model() = EncodeModelReference(*ParseModelReference(model));
}

std::string CheckModelReference(const std::string& text) {
  const auto parsed = ParseModelReference(text);
  return parsed.ok() ? std::string() : Message(parsed.status());
}

CLI::Option* AddModelOption(CLI::App& command, std::string& model, const std::string& description) {
  return command.add_option("--model", model, description)
      ->type_name("NAME[/VERSION]")
      ->check(CheckModelReference);
}

void AddPlannerOptions(CLI::App& command, PlannerOptions& options) {
  command
      .add_option(
          "--planner", options.address,
          "Planner to ask: HOST:PORT, or replicas: IP:PORT,IP:PORT,... or a name of several "
          "addresses")
      ->type_name("HOST:PORT")
      ->check(CheckReplicaAddress)
      ->capture_default_str()
      ->envname("NEUROSHARD_PLANNER");
  InRange(command.add_option("--timeout-s", options.timeout_s,
                             "Give up on an answer after so many seconds"),
          1, 86'400)
      ->capture_default_str();
  AddTlsOptions(command, options.tls);
}

}  // namespace neuroshard
