#include "server/service/planner_messages.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "common/codec/fingerprint.h"
#include "common/codec/plan_codec.h"
#include "common/codec/request_faults.h"
#include "common/domain/table_names.h"
#include "server/cost/model_error.h"

namespace neuroshard {
namespace {

void EncodeModelRef(const CostModelRef& ref, v1::CostModelRef* message) {
  message->set_name(ref.name);
  message->set_version(ref.version);
  message->set_digest(ref.digest);
}

v1::PriceBasis EncodePriceBasis(const PriceBasis& basis) {
  v1::PriceBasis message;
  message.set_kind(std::string(ToText(basis.kind)));
  message.set_text(basis.text);
  message.set_measured_until(basis.measured_until);
  for (const std::string& difference : basis.differences) message.add_differences(difference);
  for (const DevicePriceBasis& of : basis.devices) {
    v1::DevicePriceBasis& device = *message.add_devices();
    device.set_device(of.device);
    device.set_num_ranks(of.num_ranks);
    device.set_model(of.model);
    device.set_version(of.version);
    if (of.measured_with != MeasuredWith()) {
      *device.mutable_measured_with() = EncodeMeasuredWith(of.measured_with);
    }
    device.set_kind(std::string(ToText(of.kind)));
  }
  for (const StagePriceBasis& of : basis.stages) {
    v1::StagePriceBasis& stage = *message.add_stages();
    stage.set_stage(std::string(ToText(of.stage)));
    stage.set_kind(std::string(ToText(of.kind)));
  }
  message.set_collective_cadence(basis.collective_cadence);
  return message;
}

v1::CostLimit EncodeCostLimit(const CostLimit& limit) {
  v1::CostLimit message;
  message.set_table(limit.table);
  if (limit.rank) message.set_rank(*limit.rank);
  message.set_shard_ms(limit.shard_ms);
  message.set_every_rank_ms(limit.every_rank_ms);
  message.set_every_rank_tables(limit.every_rank_tables);
  for (const CostLimitRule& rule : limit.rules) {
    v1::CostLimitRule& demand = *message.add_rules();
    demand.set_path(rule.path);
    demand.set_text(rule.text);
  }
  if (limit.bound_without_ms) message.set_bound_without_ms(*limit.bound_without_ms);
  if (limit.cost_without_ms) message.set_cost_without_ms(*limit.cost_without_ms);
  return message;
}

v1::LowerBound EncodeLowerBound(const LowerBound& bound, const PlanCost& cost) {
  const double plan_cost_ms = bound.BoundedMs(cost);
  v1::LowerBound message;
  message.set_cost_ms(bound.cost_ms);
  message.set_kind(std::string(ToText(bound.kind)));
  message.set_scope(bound.scope);
  if (bound.of_mean_of_max) message.set_objective(std::string(ToText(PlanObjective::kMeanOfMax)));
  if (bound.cost_ms > 0) {
    const double gap_percent = 100 * (plan_cost_ms - bound.cost_ms) / bound.cost_ms;
    // Below a certified bound there is nothing but rounding.
    message.set_gap_percent(bound.kind == BoundKind::kCertified ? std::max(gap_percent, 0.0)
                                                                : gap_percent);
  }
  if (bound.limit) *message.mutable_limit() = EncodeCostLimit(*bound.limit);
  return message;
}

v1::TableExplanation EncodeExplanation(const TableExplanation& explanation) {
  v1::TableExplanation message;
  message.set_table(explanation.table);
  message.set_sharding_type(std::string(ToText(explanation.sharding_type)));
  for (const TableAlternative& alternative : explanation.alternatives) {
    v1::TableAlternative& other = *message.add_alternatives();
    other.set_sharding_type(std::string(ToText(alternative.sharding_type)));
    other.set_num_shards(alternative.num_shards);
    if (alternative.embedding_cost_ms) {
      other.set_embedding_cost_ms(*alternative.embedding_cost_ms);
    }
    other.set_reason(alternative.reason);
  }
  return message;
}

v1::MigrationReport EncodeMigrationReport(const MigrationReport& report) {
  v1::MigrationReport message;
  message.set_moved_bytes(report.moved_bytes);
  for (const MovedTable& table : report.tables) {
    v1::MovedTable& moved = *message.add_tables();
    moved.set_table(table.table);
    moved.set_bytes(table.bytes);
  }
  return message;
}

v1::MeasuredRanges EncodeRanges(const ConditionRanges& ranges) {
  v1::MeasuredRanges message;
  message.set_min_batch_size(ranges.min_batch_size);
  message.set_max_batch_size(ranges.max_batch_size);
  for (const std::string& dtype : ranges.weight_dtypes) message.add_weight_dtypes(dtype);
  for (const std::string& optimizer : ranges.optimizers) message.add_optimizers(optimizer);
  message.set_min_ranks(ranges.min_ranks);
  message.set_max_ranks(ranges.max_ranks);
  message.set_max_hosts(ranges.max_hosts);
  for (const std::string& mode : ranges.pooling_modes) message.add_pooling_modes(mode);
  for (const std::string& kernel : ranges.compute_kernels) message.add_compute_kernels(kernel);
  return message;
}

v1::ModelDrift EncodeDrift(const StageDrift& drift) {
  v1::ModelDrift message;
  message.set_stage(drift.stage);
  message.set_samples(drift.samples);
  message.set_median_ratio(drift.median_ratio);
  message.set_p10_ratio(drift.p10_ratio);
  message.set_p90_ratio(drift.p90_ratio);
  message.set_since(drift.since);
  message.set_until(drift.until);
  return message;
}

// What answers to searches and evaluations have in common.
template <typename Response>
void EncodeReport(const PlanRequest& request, const PlanAnswer& answer, Response& response) {
  response.set_global_batch_size(request.global_batch_size);
  EncodeModelRef(answer.model, response.mutable_cost_model());
  *response.mutable_price_basis() = EncodePriceBasis(answer.basis);
  for (const std::string& warning : answer.warnings) response.add_warnings(warning);
  if (!answer.has_cost()) return;
  *response.mutable_cost() = EncodePlanCost(answer.cost);
  if (answer.lower_bound) {
    *response.mutable_lower_bound() = EncodeLowerBound(*answer.lower_bound, answer.cost);
  }
  for (const TableExplanation& explanation : answer.explanations) {
    *response.add_explanations() = EncodeExplanation(explanation);
  }
  if (answer.migration) *response.mutable_migration() = EncodeMigrationReport(*answer.migration);
  if (answer.analytic_cost_ms) response.set_analytic_cost_ms(*answer.analytic_cost_ms);
}

v1::Plan EncodePlanWithKinds(Plan plan, const std::vector<Table>& tables) {
  const std::vector<int> table_of = TablesOf(plan, tables);
  for (std::size_t t = 0; t < table_of.size(); ++t) {
    const bool unpooled = table_of[t] >= 0 && tables[static_cast<std::size_t>(table_of[t])].kind ==
                                                  TableKind::kEmbedding;
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
  search.set_strategy(answer.statistics.strategy);
  search.set_search_ms(answer.search_ms);
  search.set_splits(answer.statistics.splits);
  search.set_plans_evaluated(answer.statistics.plans_evaluated);
  search.set_compute_evaluations(answer.statistics.compute_evaluations);
  search.set_time_limit_reached(answer.statistics.time_limit_reached);
  response.set_request_fingerprint(fingerprint);
  response.set_seed(request.search.seed.value_or(0));
  response.set_request_id(request.request_id);
  EncodeReport(request, answer, response);
  return response;
}

v1::EvaluatePlanResponse EncodeEvaluation(const PlanRequest& request, const PlanAnswer& answer) {
  v1::EvaluatePlanResponse response;
  response.set_legal(answer.violations.empty());
  for (const Violation& violation : answer.violations) {
    v1::PlanViolation& message = *response.add_violations();
    message.set_field(violation.field);
    message.set_description(violation.description);
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
  EncodeModelRef(answer.model, response.mutable_cost_model());
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
  summary.set_name(info.name);
  summary.set_version(info.version);
  summary.set_is_default(is_default);
  summary.set_kind(info.kind);
  summary.set_device(info.measured_with.device);
  summary.set_backend(info.measured_with.backend);
  summary.set_collective_backend(info.measured_with.collective_backend);
  summary.set_collective_cadence(info.measured_with.collective_cadence);
  for (const int count : info.coverage.num_devices) summary.add_num_devices(count);
  summary.set_max_num_devices(info.coverage.max_ranks);
  summary.set_share(share);
  summary.set_digest(info.digest);
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
  response.set_global_batch_size(info.coverage.global_batch_size);
  response.set_weight_dtype(info.coverage.weight_dtype);
  response.set_optimizer(info.coverage.optimizer);
  for (const std::string& feature : info.coverage.features) response.add_features(feature);
  for (const auto& [key, value] : info.details) (*response.mutable_details())[key] = value;
  for (const ShardingType type : info.coverage.sharding_types) {
    response.add_sharding_types(std::string(ToText(type)));
  }
  if (info.coverage.ranges != ConditionRanges()) {
    *response.mutable_measured_ranges() = EncodeRanges(info.coverage.ranges);
  }
  response.set_interval_coverage(info.properties.interval_coverage);
  for (const StageDrift& drift : info.drift) *response.add_drift() = EncodeDrift(drift);
  response.set_unusable_reason(info.unusable_reason);
  response.set_comm_fabric(info.coverage.comm_fabric);
  return response;
}

v1::PublishedDevice EncodePublishedDevice(const PublishedDevice& device) {
  v1::PublishedDevice message;
  message.set_name(device.name);
  message.set_product(device.product);
  for (const std::string& name : device.reported_as) message.add_reported_as(name);
  message.set_memory_bytes(device.memory_bytes);
  message.set_memory_bytes_per_s(device.memory_bytes_per_s);
  if (device.fabric) {
    message.set_fabric(device.fabric->name);
    message.set_intra_host_bytes_per_s(device.fabric->intra_host.bytes_per_s);
    message.set_inter_host_bytes_per_s(device.fabric->inter_host.bytes_per_s);
  }
  message.set_source(device.source);
  return message;
}

}  // namespace neuroshard
