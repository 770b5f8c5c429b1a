#include "client/cli/prediction_sets.h"

#include <limits>
#include <utility>

#include "client/cli/global_batch_size.h"
#include "client/validate/plan_shards.h"
#include "common/codec/request_codec.h"

namespace neuroshard {
namespace {

std::vector<ComputeSample> SetsOf(const PlanRequest& request, TableSets tables) {
  std::vector<ComputeSample> sets;
  for (const Table& table : request.tables) {
    if (sets.empty() || tables == TableSets::kEachAlone) {
      ComputeSample& set = sets.emplace_back();
      set.batch_size = request.global_batch_size;
      set.optimizer = request.optimizer;
    }
    sets.back().shards.push_back(MeasuredShardOf(table, table.num_embeddings, table.embedding_dim));
  }
  return sets;
}

// The batch size is decoded with the tables, since reuse by a Zipf exponent depends on it.
StatusOr<PredictionQuestion> AskOfTables(const v1::ShardPlanRequest& asked, TableSets tables,
                                         const std::vector<std::int64_t>& batch_sizes) {
  PredictionQuestion question;
  const auto add = [&](const v1::ShardPlanRequest& message) -> Status {
    NS_ASSIGN_OR_RETURN(PlanRequest request, DecodePlanRequest(message, RequestLimits()));
    for (ComputeSample& set : SetsOf(request, tables)) {
      question.request.sets.push_back(std::move(set));
    }
    question.request.request_id = request.request_id;
    question.request.cost_model = request.cost_model;
    question.warnings = std::move(request.warnings);
    if (!request.topology.host_memory_bytes.empty()) {
      question.warnings.push_back("host memory is left out: tables are priced in device memory");
    }
    if (!request.topology.ssd_bytes.empty()) {
      question.warnings.push_back("SSDs are left out: tables are priced in device memory");
    }
    for (std::string& line : LeftOutOf(request.tables)) {
      question.warnings.push_back(std::move(line));
    }
    return absl::OkStatus();
  };
  if (batch_sizes.empty()) NS_RETURN_IF_ERROR(add(asked));
  for (const std::int64_t batch_size : batch_sizes) {
    v1::ShardPlanRequest message = asked;
    SetGlobalBatchSize(batch_size, message);
    NS_RETURN_IF_ERROR(add(message));
  }
  return question;
}

StatusOr<PredictionQuestion> AskOfSets(const v1::PredictComputeRequest& message,
                                       const std::vector<std::int64_t>& batch_sizes) {
  RequestLimits limits;
  limits.max_prediction_shards = std::numeric_limits<std::int64_t>::max();  // the server's to say
  NS_ASSIGN_OR_RETURN(PredictionRequest request, DecodePredictionRequest(message, limits));
  if (batch_sizes.empty()) return PredictionQuestion{std::move(request), {}};
  const std::vector<ComputeSample> sets = std::exchange(request.sets, {});
  for (const std::int64_t batch_size : batch_sizes) {
    for (ComputeSample set : sets) {
      set.batch_size = batch_size;
      request.sets.push_back(std::move(set));
    }
  }
  return PredictionQuestion{std::move(request), {}};
}

}  // namespace

StatusOr<PredictionQuestion> MakePredictionQuestion(const PredictionInput& input, TableSets tables,
                                                    const PredictionConditions& conditions) {
  StatusOr<PredictionQuestion> question;
  if (const auto* request = std::get_if<v1::ShardPlanRequest>(&input)) {
    question = AskOfTables(*request, tables, conditions.batch_sizes);
  } else if (tables == TableSets::kTogether) {
    return InvalidArgument("--together is for the tables of a request; this file lists its sets");
  } else {
    question = AskOfSets(std::get<v1::PredictComputeRequest>(input), conditions.batch_sizes);
  }
  if (question.ok() && conditions.optimizer) {
    for (ComputeSample& set : question->request.sets) set.optimizer = *conditions.optimizer;
  }
  return question;
}

}  // namespace neuroshard
