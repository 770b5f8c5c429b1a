#include "client/sweep/active_sampling.h"

#include <algorithm>
#include <cmath>

#include "common/base/positions.h"
#include "common/codec/measurement_codec.h"

namespace neuroshard {
namespace {

// Well below a planner's default limits of shards and bytes of a call.
constexpr int kShardsPerCall = 10'000;

// Candidates from `begin` on, as many as fit a call.
v1::PredictComputeRequest Question(const CostModelRef& model,
                                   const std::vector<ComputeSample>& candidates,
                                   std::size_t begin) {
  v1::PredictComputeRequest request;
  *request.mutable_cost_model() = EncodeModelReference(model);
  int shards = 0;
  for (std::size_t i = begin; i < candidates.size(); ++i) {
    shards += static_cast<int>(candidates[i].shards.size());
    if (shards > kShardsPerCall && i > begin) break;
    v1::ComputeSample sample = EncodeComputeSample(candidates[i]);
    v1::ComputeSet& set = *request.add_sets();
    set.mutable_shards()->Swap(sample.mutable_shards());
    set.set_batch_size(sample.batch_size());
    set.set_optimizer(sample.optimizer());
  }
  return request;
}

StatusOr<double> RelativeWidth(const v1::ComputePrediction& prediction,
                               const std::string& sample_id) {
  const double low_ms = prediction.total_interval().low_ms();
  const double high_ms = prediction.total_interval().high_ms();
  const double width = (high_ms - low_ms) / prediction.total_ms();
  if (!prediction.has_total_interval() || !std::isfinite(width)) {
    return FailedPrecondition("the model does not say how sure it is of sample {}", sample_id);
  }
  return width;
}

}  // namespace

StatusOr<CostModelRef> ResolveChoosingModel(const PlannerClient& planner,
                                            const CostModelRef& model) {
  NS_ASSIGN_OR_RETURN(const v1::GetCostModelResponse response,
                      planner.GetCostModel(EncodeModelReference(model)));
  CostModelRef resolved{response.summary().name(), response.summary().version()};
  if (response.interval_coverage() > 0) return resolved;
  return FailedPrecondition(
      "cost model {} does not say how sure it is of its predictions, so it cannot choose what to "
      "measure: universal models do",
      ModelReferenceText(resolved));
}

StatusOr<std::vector<ComputeSample>> ChooseLeastSure(const PlannerClient& planner,
                                                     const CostModelRef& model,
                                                     const std::vector<ComputeSample>& candidates,
                                                     std::size_t count, const StopSignal& stop) {
  std::vector<double> widths;
  while (widths.size() < candidates.size()) {
    if (stop.ShouldStop()) return absl::CancelledError("stopped");
    const v1::PredictComputeRequest question = Question(model, candidates, widths.size());
    NS_ASSIGN_OR_RETURN(const v1::PredictComputeResponse answer, planner.PredictCompute(question));
    if (answer.predictions_size() != question.sets_size()) {
      return Internal("the planner answered {} of {} questions", answer.predictions_size(),
                      question.sets_size());
    }
    for (const v1::ComputePrediction& prediction : answer.predictions()) {
      NS_ASSIGN_OR_RETURN(const double width,
                          RelativeWidth(prediction, candidates[widths.size()].sample_id));
      widths.push_back(width);
    }
  }
  return Mapped(WidestIntervals(widths, count),
                [&](const std::size_t position) { return candidates[position]; });
}

std::vector<std::size_t> WidestIntervals(const std::vector<double>& widths, std::size_t count) {
  std::vector<std::size_t> positions =
      PositionsDescending(widths.size(), [&](std::size_t i) { return widths[i]; });
  positions.resize(std::min(count, positions.size()));
  std::ranges::sort(positions);
  return positions;
}

}  // namespace neuroshard
