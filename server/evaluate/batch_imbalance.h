// Input imbalance: what a plan costs in each of a sample of batches.
#pragma once

#include <cstddef>
#include <optional>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/plan.h"
#include "common/domain/plan_report.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// Sampled batches of the request: entries of Table::batch_pooling_factors.
std::size_t NumBatches(const PlanRequest& request);

// Makes the tables of `of_batch`, a copy of `request`, those of batch `batch`. In a batch, the ids
// of a table's features are in the proportion of the mean, and reuse is that of the mean. A table
// without batches is the same in all of them.
void SetBatch(const PlanRequest& request, std::size_t batch, PlanRequest& of_batch);

// The mean over the request's sampled batches (Table::batch_pooling_factors) of the plan's
// embedding cost in that batch; none where the request has no batches. None, too, where `stop` says
// stop, or the batches have more than kMaxShardsOfBatches shards to price. Fails as PricePlan,
// which it asks once a batch.
inline constexpr std::size_t kMaxShardsOfBatches = 1'000'000;
bool CanPriceBatches(const PlanRequest& request, const Plan& plan);
StatusOr<std::optional<double>> MeanOfMaxMs(const PlanRequest& request, const Plan& plan,
                                            const BoundCostModel& model, const StopSignal& stop);

// What no plan's mean falls below, or would be with an even spread: the mean over the batches of
// LowerBoundOf each. Certified where all of them are, since a plan costs at least the bound in
// every batch. None beyond kMaxTablesOfBounds tables x batches, and where `stop` says stop.
inline constexpr std::size_t kMaxTablesOfBounds = 20'000;
std::optional<LowerBound> LowerBoundOfMean(const PlanRequest& request, const BoundCostModel& model,
                                           const StopSignal& stop);

}  // namespace neuroshard
