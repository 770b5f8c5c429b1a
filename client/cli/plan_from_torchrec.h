// A plan in TorchRec's form, as PlanAsTorchRec (plan_output.h) and neuroshard.torchrec.save_plan
// write it, read back.
#pragma once

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "neuroshard/v1/planner.pb.h"

namespace neuroshard {

// Whether it is a plan in TorchRec's form, by what only this form has: "plan" is an object of
// modules, without a world_size.
bool IsTorchRecPlan(const nlohmann::ordered_json& document);

// INVALID_ARGUMENT lists every fault with its place, as in `plan["ebc"]["t0"].shards[1].placement`.
// What the words mean is left to the planner. Two things are not in the form: world_size, which is
// as large as the tables need that are on every rank, else as the largest rank; and the size of
// data_parallel tables, whose shards have no rows and no columns until completed.
StatusOr<v1::Plan> PlanFromTorchRec(const nlohmann::ordered_json& document);

// Gives shards without rows and columns of data_parallel tables the size that the request's table
// has, tables of other modules the request's, where it has one of that name, and the plan the
// request's number of ranks, where it needs no other, and of ranks on a host.
void CompleteFromRequest(const v1::ShardPlanRequest& request, v1::Plan& plan);
// Sizes alone, from another plan of the same tables.
void CompleteReplicas(const v1::Plan& other, v1::Plan& plan);

}  // namespace neuroshard
