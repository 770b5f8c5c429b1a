// Options that every command which asks a planner has.
#pragma once

#include <iosfwd>
#include <string>

#include "client/cli/tls_options.h"
#include "client/stub/call_policy.h"
#include "neuroshard/v1/planner.pb.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace neuroshard {

inline constexpr char kDefaultPlanner[] = "127.0.0.1:50051";

// Address of a planner and the limits of a call to it.
struct PlannerOptions {
  std::string address = kDefaultPlanner;
  int timeout_s = 600;  // a search may take long; commands that only look something up set less
  TlsFiles tls = {};

  // Long waits, as for a quota, are told on `log`, which must outlive the policy.
  CallPolicy policy(std::ostream& log) const;
};

// The fault of a NAME[/VERSION]; empty: none. For CLI::Option::check.
std::string CheckModelReference(const std::string& text);

// --model NAME[/VERSION]; a usage error when it is not that. `model` is empty when it is not given,
// and must outlive the parse.
CLI::Option* AddModelOption(CLI::App& command, std::string& model, const std::string& description);

// Puts --model, unless it is empty, in place of the request's model; the version that serves
// where it names none. Models of devices stay.
void OverrideModel(const std::string& model, v1::ShardPlanRequest& request);

// Asks for the very models that priced an answer: that of the whole, and those of devices.
void AskForModelsOf(const v1::CostModelRef& model, const v1::PriceBasis& basis,
                    v1::ShardPlanRequest& request);

// --planner, --timeout-s and those of AddTlsOptions. `options` must outlive the parse.
void AddPlannerOptions(CLI::App& command, PlannerOptions& options);

}  // namespace neuroshard
