#include "client/cli/planner_options.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <ostream>

#include "client/cli/option_check.h"
#include "client/stub/model_reference.h"
#include "common/cli/option_values.h"

namespace neuroshard {

CallPolicy PlannerOptions::policy(std::ostream& log) const {
  CallPolicy policy;
  policy.tls = tls.Read();
  policy.deadline = std::chrono::seconds(timeout_s);
  policy.on_wait = [&log](const Status& why, std::chrono::milliseconds wait) {
    log << fmt::format("{}; trying again in {:.0f} s\n", Message(why),
                       static_cast<double>(wait.count()) / 1000)
        << std::flush;
  };
  return policy;
}

void OverrideModel(const std::string& model, v1::ShardPlanRequest& request) {
  if (model.empty()) return;
  *request.mutable_cost_model() = EncodeModelReference(*ParseModelReference(model));
}

void AskForModelsOf(const v1::CostModelRef& model, const v1::PriceBasis& basis,
                    v1::ShardPlanRequest& request) {
  *request.mutable_cost_model() = model;
  request.clear_device_cost_models();
  for (const v1::DevicePriceBasis& of : basis.devices()) {
    if (of.device().empty()) continue;  // have that of the whole
    v1::DeviceCostModel& entry = *request.add_device_cost_models();
    entry.set_device(of.device());
    entry.mutable_cost_model()->set_name(of.model());
    entry.mutable_cost_model()->set_version(of.version());
  }
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
          "Planner to ask: HOST:PORT, or replicas: HOST:PORT,HOST:PORT,... or a name of several "
          "addresses, or unix:/PATH")
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
