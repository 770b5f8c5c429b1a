#include "server/evaluate/batch_imbalance.h"

#include <algorithm>

#include "server/evaluate/lower_bound.h"
#include "server/evaluate/memory_choices.h"
#include "server/evaluate/price_plan.h"

namespace neuroshard {
namespace {

void SetPoolingFactor(double pooling_factor, const Table& mean, Table& table) {
  table.pooling_factor = pooling_factor;
  const double even =
      pooling_factor / static_cast<double>(std::max<std::size_t>(1, mean.pooling_factors.size()));
  for (std::size_t f = 0; f < mean.pooling_factors.size(); ++f) {
    table.pooling_factors[f] = mean.pooling_factor > 0
                                   ? mean.pooling_factors[f] / mean.pooling_factor * pooling_factor
                                   : even;
  }
}

}  // namespace

// As many for every table that has any.
std::size_t NumBatches(const PlanRequest& request) {
  std::size_t count = 0;
  for (const Table& table : request.tables) {
    count = std::max(count, table.batch_pooling_factors.size());
  }
  return count;
}

void SetBatch(const PlanRequest& request, std::size_t batch, PlanRequest& of_batch) {
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    const Table& mean = request.tables[t];
    if (mean.batch_pooling_factors.empty()) continue;
    SetPoolingFactor(mean.batch_pooling_factors[batch], mean, of_batch.tables[t]);
  }
}

bool CanPriceBatches(const PlanRequest& request, const Plan& plan) {
  const std::size_t num_batches = NumBatches(request);
  std::size_t num_shards = 1;
  for (const TablePlan& table : plan.tables) num_shards += table.shards.size();
  return num_batches > 0 && num_batches <= kMaxShardsOfBatches / num_shards;
}

StatusOr<std::optional<double>> MeanOfMaxMs(const PlanRequest& request, const Plan& plan,
                                            const BoundCostModel& model, const StopSignal& stop) {
  if (!CanPriceBatches(request, plan)) return std::nullopt;
  const std::size_t num_batches = NumBatches(request);
  PlanRequest of_batch = request;
  double sum_ms = 0;
  for (std::size_t b = 0; b < num_batches; ++b) {
    if (stop.ShouldStop()) return std::nullopt;
    SetBatch(request, b, of_batch);
    NS_ASSIGN_OR_RETURN(const PlanCost cost, PricePlan(of_batch, plan, model));
    sum_ms += cost.embedding_cost_ms;
  }
  return sum_ms / static_cast<double>(num_batches);
}

std::optional<LowerBound> LowerBoundOfMean(const PlanRequest& request, const BoundCostModel& model,
                                           const StopSignal& stop) {
  const std::size_t num_batches = NumBatches(request);
  if (num_batches == 0 || request.tables.size() > kMaxTablesOfBounds / num_batches) {
    return std::nullopt;
  }
  const double row_capacity_bytes = RowCapacityBytes(request);
  PlanRequest of_batch = request;
  LowerBound mean;
  mean.kind = BoundKind::kCertified;
  mean.of_mean_of_max = true;
  for (std::size_t b = 0; b < num_batches; ++b) {
    if (stop.ShouldStop()) return std::nullopt;
    SetBatch(request, b, of_batch);
    const LowerBound bound = LowerBoundOf(of_batch, model, row_capacity_bytes);
    mean.cost_ms += bound.cost_ms / static_cast<double>(num_batches);
    if (b == 0 || bound.kind == BoundKind::kReference) mean.scope = bound.scope;
    if (bound.kind == BoundKind::kReference) mean.kind = bound.kind;
  }
  return mean;
}

}  // namespace neuroshard
