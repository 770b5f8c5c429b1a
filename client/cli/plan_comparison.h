// The comparison of a plan with what other strategies make of the same request.
#pragma once

#include <string>
#include <vector>

#include "client/stub/planner_client.h"
#include "common/base/status.h"
#include "neuroshard/v1/planner.pb.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace neuroshard {

// --compare NAME[,NAME...]; a usage error for what is no strategy. `strategies` must outlive the
// parse.
CLI::Option* AddCompareOption(CLI::App& command, std::vector<std::string>& strategies);

// Asks for the plan of each strategy, all by the model that priced `response`, and adds what came
// of it to response.comparison. A strategy that obeys no constraints is asked without them, and its
// plan is then evaluated against the request. A strategy without a plan is an entry with the
// reason; UNAVAILABLE is an error.
Status ComparePlans(const PlannerClient& planner, const v1::ShardPlanRequest& request,
                    const std::vector<std::string>& strategies, v1::ShardPlanResponse& response);

// A table of response.comparison with the response's own plan first, and below it why plans are
// missing or illegal. Empty when nothing was compared.
std::string ComparisonText(const v1::ShardPlanResponse& response);

}  // namespace neuroshard
