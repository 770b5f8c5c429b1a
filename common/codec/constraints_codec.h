// Constraints <-> their message. Names of tables become indices, and back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/violations.h"
#include "common/domain/constraints.h"
#include "common/domain/plan_request.h"
#include "common/domain/table.h"
#include "common/domain/topology.h"
#include "neuroshard/v1/constraints.pb.h"

namespace neuroshard {

// Entries of constraints: the rules and groups, and all names, words, ranks and hosts that they
// list. Decoding and planning take time for each.
std::int64_t CountConstraintEntries(const v1::Constraints& message);

// Field paths start with "constraints.". Rules that contradict each other are legal: the planner
// proves it. With an empty `topology`, when the request's own is faulty, ranks and hosts are not
// compared with it.
Constraints DecodeConstraints(const v1::Constraints& message, const std::vector<Table>& tables,
                              const Topology& topology, Violations& violations);

// What rules ask for that changes nothing, gives what there is without them, or that FBGEMM does
// not train.
std::vector<std::string> ConstraintWarnings(const PlanRequest& request);

// DecodeConstraints gives the same constraints again.
v1::Constraints EncodeConstraints(const Constraints& constraints, const std::vector<Table>& tables);

}  // namespace neuroshard
