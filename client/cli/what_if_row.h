// A row of a what-if answer: the request that it is of, the groups of 2D parallelism in it
// (common/domain/sharding_groups.h), and what it says of the plan. Rows are independent calls, a
// few at a time.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/stub/planner_client.h"
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

// What averaging adds to each batch; 0 of a row without groups.
double SyncMsABatch(const v1::WhatIfRow& row);

// What is asked for a row, and what became of it: an answer, or why there is none.
struct PlannedRow {
  const v1::WhatIfTopology* topology = nullptr;
  std::optional<Groups> groups = {};  // none: without 2D
  v1::ShardPlanRequest request = {};
  v1::ShardPlanResponse answer = {};
  v1::WhatIfRow row = {};
  Status failure = {};
};

template <typename Each, typename Gone>
void EraseIf(google::protobuf::RepeatedPtrField<Each>& all, const Gone& gone) {
  all.erase(std::remove_if(all.begin(), all.end(), gone), all.end());
}

// Runs task(0) .. task(count - 1), at most 4 at a time, and returns when all have ended.
template <typename Task>
void RunSideBySide(std::size_t count, const Task& task) {
  constexpr std::size_t kMaxConcurrentCalls = 4;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) task(i);
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t < std::min(kMaxConcurrentCalls, count); ++t) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

// Sets row and request: the request's tables on the topology, with groups on one of them.
void PrepareRow(const v1::ShardPlanRequest& request, PlannedRow& planned);

// Asks for the plan of a prepared row.
void PlanRow(const PlannerClient& planner, PlannedRow& planned);

// What a plan's cost says of it, and what follows from that; two_dimensional.sync_ms is set.
void TakeCost(const v1::PlanCost& cost, const v1::WhatIfTopology& topology, v1::WhatIfRow& row);

}  // namespace neuroshard
