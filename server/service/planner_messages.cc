#include "server/service/planner_messages.h"

#include <algorithm>

#include "common/codec/plan_codec.h"

namespace neuroshard {
namespace {

void EncodeModelRef(const CostModelRef& ref, v1::CostModelRef* message) {
  message->set_name(ref.name);
  message->set_version(ref.version);
}

v1::LowerBound EncodeLowerBound(const LowerBound& bound, double plan_cost_ms) {
  v1::LowerBound message;
  message.set_cost_ms(bound.cost_ms);
  message.set_kind(std::string(ToText(bound.kind)));
  message.set_scope(bound.scope);
  if (bound.cost_ms > 0) {
    const double gap_percent = 100 * (plan_cost_ms - bound.cost_ms) / bound.cost_ms;
    // Below a certified bound there is nothing but rounding.
    message.set_gap_percent(bound.kind == BoundKind::kCertified ? std::max(gap_percent, 0.0)
                                                                : gap_percent);
  }
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

// What both kinds of answers say about a plan besides its cost.
template <typename Answer, typename Response>
void EncodeReport(const Answer& answer, double plan_cost_ms, Response& response) {
  if (answer.lower_bound) {
    *response.mutable_lower_bound() = EncodeLowerBound(*answer.lower_bound, plan_cost_ms);
  }
  for (const TableExplanation& explanation : answer.explanations) {
    *response.add_explanations() = EncodeExplanation(explanation);
  }
  if (answer.migration) *response.mutable_migration() = EncodeMigrationReport(*answer.migration);
}

}  // namespace

v1::ShardPlanResponse EncodePlanAnswer(const PlanRequest& request, const PlanAnswer& answer,
                                       const std::string& fingerprint) {
  v1::ShardPlanResponse response;
  *response.mutable_plan() = EncodePlan(answer.plan);
  *response.mutable_cost() = EncodePlanCost(answer.cost);
  v1::SearchStatistics& search = *response.mutable_search();
  search.set_strategy(answer.statistics.strategy);
  search.set_search_ms(answer.search_ms);
  search.set_splits(answer.statistics.splits);
  search.set_plans_evaluated(answer.statistics.plans_evaluated);
  search.set_compute_evaluations(answer.statistics.compute_evaluations);
  search.set_time_limit_reached(answer.statistics.time_limit_reached);
  EncodeModelRef(answer.model, response.mutable_cost_model());
  response.set_request_fingerprint(fingerprint);
  response.set_seed(request.search.seed);
  for (const std::string& warning : answer.warnings) response.add_warnings(warning);
  response.set_request_id(request.request_id);
  EncodeReport(answer, answer.cost.embedding_cost_ms, response);
  return response;
}

v1::EvaluatePlanResponse EncodeEvaluation(const EvaluationAnswer& answer) {
  v1::EvaluatePlanResponse response;
  response.set_legal(answer.violations.empty());
  for (const Violation& violation : answer.violations) {
    v1::PlanViolation& message = *response.add_violations();
    message.set_field(violation.field);
    message.set_description(violation.description);
  }
  if (answer.cost.has_value()) {
    *response.mutable_cost() = EncodePlanCost(*answer.cost);
    EncodeReport(answer, answer.cost->embedding_cost_ms, response);
  }
  EncodeModelRef(answer.model, response.mutable_cost_model());
  for (const std::string& warning : answer.warnings) response.add_warnings(warning);
  return response;
}

v1::CostModelSummary EncodeModelSummary(const CostModelInfo& info, bool is_default) {
  v1::CostModelSummary summary;
  summary.set_name(info.name);
  summary.set_version(info.version);
  summary.set_is_default(is_default);
  summary.set_kind(info.kind);
  summary.set_device(info.device);
  summary.set_backend(info.backend);
  for (const int count : info.num_devices) summary.add_num_devices(count);
  return summary;
}

v1::GetCostModelResponse EncodeModel(const CostModelInfo& info, bool is_default) {
  v1::GetCostModelResponse response;
  *response.mutable_summary() = EncodeModelSummary(info, is_default);
  response.set_global_batch_size(info.global_batch_size);
  response.set_weight_dtype(info.weight_dtype);
  response.set_optimizer(info.optimizer);
  for (const std::string& feature : info.features) response.add_features(feature);
  for (const auto& [key, value] : info.details) (*response.mutable_details())[key] = value;
  for (const ShardingType type : info.sharding_types) {
    response.add_sharding_types(std::string(ToText(type)));
  }
  return response;
}

}  // namespace neuroshard
