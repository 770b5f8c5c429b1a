// The groups of 2D parallelism (common/domain/sharding_groups.h) in rows of a what-if answer.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/codec/field_check.h"
#include "common/domain/sharding_groups.h"
#include "neuroshard/v1/planner.pb.h"
#include "neuroshard/v1/what_if.pb.h"

namespace neuroshard {

// One way to cut a topology's ranks into groups.
struct Groups {
  int size = 0;
  GroupRanks ranks = GroupRanks::kAlternating;
  Topology of_one = {};
  int replicas = 1;   // groups
  Status fault = {};  // why there are none such, where the size was asked for and has others

  // "groups of 8", "contiguous groups of 8".
  std::string name() const;
};

// Those that message.two_dimensional asks for, in the order of its rows. The topology has no fault
// itself; those of its groups go to `check`.
std::vector<Groups> AskedGroups(const v1::WhatIfTopology& message, const FieldCheck& check);

// The arguments of DMPCollection, and how often groups average.
v1::TwoDimensionalRow RowOf(const Groups& groups, const v1::TwoDimensional& stated);

// Sets what averaging costs with this plan in row.two_dimensional, and warns of what DMPCollection
// does otherwise than the row's price says. Nothing where there is one group.
Status PriceSync(const v1::Topology& topology, const Groups& groups,
                 const v1::ShardPlanRequest& message, const v1::Plan& message_plan,
                 v1::WhatIfRow& row);

// What averaging adds to each batch; 0 of a row without groups.
double SyncMsABatch(const v1::WhatIfRow& row);

}  // namespace neuroshard
