#include "client/cli/planner_options.h"

#include <CLI/CLI.hpp>

#include "client/cli/option_check.h"

namespace neuroshard {

void OverrideModel(const std::string& model, v1::ShardPlanRequest& request) {
  if (model.empty()) return;
  request.mutable_cost_model()->set_name(model);
  request.mutable_cost_model()->clear_version();
}

void AddPlannerOptions(CLI::App& command, PlannerOptions& options) {
  command.add_option("--planner", options.address, "Planner to ask")
      ->type_name("HOST:PORT")
      ->check(CheckAddress)
      ->capture_default_str();
  command
      .add_option("--timeout-s", options.timeout_s, "Give up on an answer after so many seconds")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
}

}  // namespace neuroshard
