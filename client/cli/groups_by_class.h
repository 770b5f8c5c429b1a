// 2D parallelism with groups of their own for EmbeddingCollections: DMPCollection's
// submodule_configs.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "client/cli/what_if_row.h"
#include "client/stub/planner_client.h"
#include "common/domain/vocabulary.h"
#include "neuroshard/v1/planner.pb.h"
#include "neuroshard/v1/what_if.pb.h"

namespace neuroshard {

bool HasBothKinds(const v1::ShardPlanRequest& request);

// What binds tables of both kinds together, so that they cannot be planned apart; empty: nothing.
std::string WhyNotApart(const v1::ShardPlanRequest& request);

// The request without tables of the other kind and without what it demands of them. It has tables
// of both, and nothing binds them together.
v1::ShardPlanRequest OfKind(TableKind kind, v1::ShardPlanRequest request);

// The row of the fastest pair of plans, one of each kind of tables, that fit together in groups that
// differ; none where no such pair is faster than `uniform`, the fastest row of the same groups for
// all. `planned`: all rows of one topology, each with groups. A warning of the fastest of all says
// why pairs were not tried; that a kind of tables has no plan in some groups is no such reason.
//
// Each kind is planned alone in all groups, and pairs are priced without further calls. Of those
// that are faster and take more memory together than there is, up to 8 have each plan made once more
// in what the other leaves.
std::optional<v1::WhatIfRow> FastestByClass(const PlannerClient& planner,
                                            const v1::ShardPlanRequest& request,
                                            std::span<const PlannedRow> planned,
                                            v1::WhatIfRow& uniform);

}  // namespace neuroshard
