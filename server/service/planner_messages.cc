#include "server/service/planner_messages.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "common/codec/fingerprint.h"
#include "common/codec/message_fields.h"
#include "common/codec/plan_codec.h"
#include "common/codec/request_faults.h"
#include "common/domain/table_names.h"
#include "server/cost/model_error.h"

namespace neuroshard {

NS_FIELDS(StagePriceBasis, stage, kind);
NS_FIELDS(DevicePriceBasis, device, num_ranks, model, version, kind);
NS_FIELDS(PriceBasis, kind, text, measured_until, differences, stages, collective_cadence);
NS_FIELDS(CostLimitRule, path, text);
NS_FIELDS(CostLimit, table, rank, shard_ms, every_rank_ms, every_rank_tables, rules,
          bound_without_ms, cost_without_ms);
NS_FIELDS(LowerBound, cost_ms, kind, scope, limit);
NS_FIELDS(TableAlternative, sharding_type, num_shards, embedding_cost_ms, reason,
          more_exchanges_ms);
NS_FIELDS(TableExplanation, table, sharding_type, alternatives);
NS_FIELDS(MovedTable, table, bytes);
NS_FIELDS(MigrationReport, moved_bytes, tables);
NS_FIELDS(SearchStatistics, strategy, splits, plans_evaluated, compute_evaluations,
          time_limit_reached);
NS_FIELDS(TradePoint, cost_ms, value);
NS_FIELDS(GoalTrade, measure, points);
NS_FIELDS(StashReport, tables, max_stashed_bytes, peak_bytes, peak_bytes_without);
NS_FIELDS(Violation, field, description);
NS_FIELDS(ConditionRanges, min_batch_size, max_batch_size, weight_dtypes, optimizers, min_ranks,
          max_ranks, max_hosts, pooling_modes, compute_kernels);
NS_FIELDS(ModelCoverage, global_batch_size, weight_dtype, optimizer, features, sharding_types,
          comm_fabric);
NS_FIELDS(CostModelInfo, name, version, kind, digest);
NS_FIELDS(StageDrift, stage, samples, median_ratio, p10_ratio, p90_ratio, since, until);
NS_FIELDS(PublishedDevice, name, product, reported_as, memory_bytes, memory_bytes_per_s, source);

namespace {

v1::PriceBasis EncodePriceBasis(const PriceBasis& basis) {
  v1::PriceBasis message;
  PutFields(basis, message);
  for (const DevicePriceBasis& of : basis.devices) {
    v1::DevicePriceBasis& device = *message.add_devices();
    PutFields(of, device);
    if (of.measured_with != MeasuredWith()) {
      *device.mutable_measured_with() = EncodeMeasuredWith(of.measured_with);
    }
  }
  return message;
}

v1::LowerBound EncodeLowerBound(const LowerBound& bound, const PlanCost& cost) {
  const double plan_cost_ms = bound.BoundedMs(cost);
  v1::LowerBound message;
  PutFields(bound, message);
  if (bound.of_mean_of_max) message.set_objective(std::string(ToText(PlanObjective::kMeanOfMax)));
  if (bound.cost_ms > 0) {
    const double gap_percent = 100 * (plan_cost_ms - bound.cost_ms) / bound.cost_ms;
    // Below a certified bound there is nothing but rounding.
    message.set_gap_percent(bound.kind == BoundKind::kCertified ? std::max(gap_percent, 0.0)
                                                                : gap_percent);
  }
  return message;
}

// What answers to searches and evaluations have in common.
template <typename Response>
void EncodeReport(const PlanRequest& request, const PlanAnswer& answer, Response& response) {
  response.set_global_batch_size(request.global_batch_size);
  *response.mutable_cost_model() = EncodeCostModelRef(answer.model);
  *response.mutable_price_basis() = EncodePriceBasis(answer.basis);
  for (const std::string& warning : answer.warnings) response.add_warnings(warning);
  if (!answer.has_cost()) return;
  *response.mutable_cost() = EncodePlanCost(answer.cost);
  if (answer.lower_bound) {
    *response.mutable_lower_bound() = EncodeLowerBound(*answer.lower_bound, answer.cost);
  }
  for (const TableExplanation& explanation : answer.explanations) {
    PutFields(explanation, *response.add_explanations());
  }
  if (answer.migration) PutFields(*answer.migration, *response.mutable_migration());
  if (answer.stash) PutFields(*answer.stash, *response.mutable_stash());
  if (answer.analytic_cost_ms) response.set_analytic_cost_ms(*answer.analytic_cost_ms);
}

v1::Plan EncodePlanWithKinds(Plan plan, const std::vector<Table>& tables) {
  const std::vector<int> table_of = TablesOf(plan, tables);
  for (std::size_t t = 0; t < table_of.size(); ++t) {
    const bool unpooled = table_of[t] >= 0 && At(tables, table_of[t]).kind == TableKind::kEmbedding;
    plan.tables[t].kind = unpooled ? std::optional(TableKind::kEmbedding) : std::nullopt;
  }
  return EncodePlan(plan);
}

}  // namespace

StatusOr<EvaluationRequest> DecodeEvaluationRequest(const v1::EvaluatePlanRequest& message,
                                                    const RequestLimits& limits) {
  RequestFaults faults;
  const bool admitted = CheckShardLimit("plan", message.plan(), limits, faults.over_limits);
  StatusOr<PlanRequest> request = DecodePlanRequest(message.request(), limits);
  faults.Add(request.status(), "request.");
  StatusOr<Plan> plan = admitted ? DecodePlan(message.plan()) : StatusOr<Plan>(Plan());
  faults.Add(plan.status(), "");
  NS_RETURN_IF_ERROR(faults.ToStatus());
  return EvaluationRequest{*std::move(request), *std::move(plan)};
}

std::string FingerprintOf(const PlanRequest& request, const PlanAnswer& answer) {
  std::vector<DeviceCostModel> devices;
  for (const DevicePriceBasis& of : answer.basis.devices) {
    devices.push_back({of.device, {of.model, of.version, of.digest}});
  }
  return RequestFingerprint(request, answer.model.name, answer.model.version, devices,
                            answer.model.digest);
}

v1::ShardPlanResponse EncodePlanAnswer(const PlanRequest& request, const PlanAnswer& answer,
                                       const std::string& fingerprint) {
  v1::ShardPlanResponse response;
  *response.mutable_plan() = EncodePlanWithKinds(answer.plan, request.tables);
  v1::SearchStatistics& search = *response.mutable_search();
  PutFields(answer.statistics, search);
  search.set_search_ms(answer.search_ms);
  response.set_request_fingerprint(fingerprint);
  response.set_seed(request.search.seed.value_or(0));
  response.set_request_id(request.request_id);
  for (const GoalTrade& trade : answer.trades) PutFields(trade, *response.add_trades());
  EncodeReport(request, answer, response);
  return response;
}

v1::EvaluatePlanResponse EncodeEvaluation(const PlanRequest& request, const PlanAnswer& answer) {
  v1::EvaluatePlanResponse response;
  response.set_legal(answer.violations.empty());
  for (const Violation& violation : answer.violations) {
    PutFields(violation, *response.add_violations());
  }
  EncodeReport(request, answer, response);
  return response;
}

v1::PredictComputeResponse EncodePrediction(const PredictionAnswer& answer) {
  v1::PredictComputeResponse response;
  for (const ComputePrediction& prediction : answer.predictions) {
    v1::ComputePrediction& message = *response.add_predictions();
    message.set_total_ms(prediction.cost.total_ms);
    if (answer.splits_compute) {
      message.set_forward_ms(prediction.cost.forward_ms);
      message.set_backward_ms(prediction.cost.backward_ms);
    }
    if (!prediction.interval) continue;
    const ComputeInterval& interval = *prediction.interval;
    *message.mutable_total_interval() = EncodeInterval(interval.total);
    if (interval.forward) *message.mutable_forward_interval() = EncodeInterval(*interval.forward);
    if (interval.backward) {
      *message.mutable_backward_interval() = EncodeInterval(*interval.backward);
    }
  }
  *response.mutable_cost_model() = EncodeCostModelRef(answer.model);
  *response.mutable_price_basis() = EncodePriceBasis(answer.basis);
  response.set_interval_coverage(answer.interval_coverage);
  if (answer.measured_with != MeasuredWith()) {
    *response.mutable_measured_with() = EncodeMeasuredWith(answer.measured_with);
  }
  for (const std::string& warning : answer.warnings) response.add_warnings(warning);
  return response;
}

v1::CostModelSummary EncodeModelSummary(const CostModelInfo& info, bool is_default, double share) {
  v1::CostModelSummary summary;
  PutFields(info, summary);
  summary.set_device(info.measured_with.device);
  summary.set_backend(info.measured_with.backend);
  summary.set_collective_backend(info.measured_with.collective_backend);
  summary.set_collective_cadence(info.measured_with.collective_cadence);
  summary.set_is_default(is_default);
  for (const int count : info.coverage.num_devices) summary.add_num_devices(count);
  summary.set_max_num_devices(info.coverage.max_ranks);
  summary.set_share(share);
  for (const std::string& reason : ReasonsAgainst(info)) summary.add_poor_reasons(reason);
  for (const StageDrift& drift : info.drift) {
    if (!HasDrifted(info, drift)) continue;
    summary.add_poor_reasons(fmt::format("has drifted: {} takes {:.2f} times what it predicts",
                                         drift.stage, drift.median_ratio));
  }
  return summary;
}

v1::GetCostModelResponse EncodeModel(const CostModelInfo& info, bool is_default, double share) {
  v1::GetCostModelResponse response;
  *response.mutable_summary() = EncodeModelSummary(info, is_default, share);
  PutFields(info.coverage, response);
  for (const auto& [key, value] : info.details) (*response.mutable_details())[key] = value;
  if (info.coverage.ranges != ConditionRanges()) {
    PutFields(info.coverage.ranges, *response.mutable_measured_ranges());
  }
  response.set_interval_coverage(info.properties.interval_coverage);
  for (const StageDrift& drift : info.drift) PutFields(drift, *response.add_drift());
  response.set_unusable_reason(info.unusable_reason);
  return response;
}

v1::PublishedDevice EncodePublishedDevice(const PublishedDevice& device) {
  v1::PublishedDevice message;
  PutFields(device, message);
  if (device.fabric) {
    message.set_fabric(device.fabric->name);
    message.set_intra_host_bytes_per_s(device.fabric->intra_host.bytes_per_s);
    message.set_inter_host_bytes_per_s(device.fabric->inter_host.bytes_per_s);
  }
  return message;
}

}  // namespace neuroshard
