// One request planned for several topologies: which hardware, and how much of it.
#pragma once

#include <string>

#include "client/cli/text_table.h"
#include "client/stub/planner_client.h"
#include "common/base/status.h"
#include "neuroshard/v1/planner.pb.h"
#include "neuroshard/v1/what_if.pb.h"

namespace neuroshard {

// A WhatIf in YAML, or in JSON when the name ends in ".json"; "-" is standard input. Every fault of
// text and values at once, with the file and the field. Devices are those that this client knows.
StatusOr<v1::WhatIf> ReadWhatIfFile(const std::string& path);

// Plans `request` for each topology, at most 4 at a time. A topology without a plan is a row with
// the reason. UNAVAILABLE is an error; what is said of every topology alike is the request's fault,
// and an error too.
StatusOr<v1::WhatIfAnswer> AskWhatIf(const PlannerClient& planner,
                                     const v1::ShardPlanRequest& request,
                                     const v1::WhatIf& what_if);

// Sets WhatIfRow.pareto. O(rows^2).
void MarkPareto(v1::WhatIfAnswer& answer);

std::string WhatIfAsTable(const v1::WhatIfAnswer& answer, const TextStyle& style);

}  // namespace neuroshard
