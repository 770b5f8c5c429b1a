// A row of a what-if answer: the request that it is of, and what it says of the plan.
#pragma once

#include <optional>
#include <string>

#include "client/cli/two_dimensional.h"
#include "client/stub/planner_client.h"
#include "common/base/status.h"
#include "common/domain/vocabulary.h"
#include "neuroshard/v1/planner.pb.h"
#include "neuroshard/v1/what_if.pb.h"

namespace neuroshard {

// What is asked for a row, and what became of it: an answer, or why there is none.
struct PlannedRow {
  const v1::WhatIfTopology* topology = nullptr;
  std::optional<Groups> groups = {};  // none: without 2D
  // The tables of this kind alone: no row of the answer, but a part of one (groups_by_class.h).
  std::optional<TableKind> kind = {};
  v1::ShardPlanRequest request = {};
  v1::ShardPlanResponse answer = {};
  v1::WhatIfRow row = {};
  Status failure = {};
};

// What no plan decides. `groups`: what they are called.
v1::WhatIfRow RowWithoutPlan(const v1::WhatIfTopology& topology, const std::string& groups,
                             const v1::ShardPlanRequest& request);

// Sets row and request: the request's tables on the topology, with groups on one of them.
void PrepareRow(const v1::ShardPlanRequest& request, PlannedRow& planned);

// Asks for the plan of a prepared row.
void PlanRow(const PlannerClient& planner, PlannedRow& planned);

// What the answer says of a plan; two_dimensional.sync_ms is set.
void TakeAnswer(const v1::ShardPlanResponse& answer, const v1::WhatIfTopology& topology,
                v1::WhatIfRow& row);

}  // namespace neuroshard
