#include "common/codec/prediction_codec.h"

#include <algorithm>

#include "common/base/violations.h"
#include "common/codec/field_check.h"
#include "common/codec/field_limits.h"
#include "common/codec/measurement_codec.h"
#include "common/codec/request_faults.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kDefaultBatchSize = 65536;

ComputeSample DecodeSet(const v1::ComputeSet& message, const FieldCheck& check) {
  ComputeSample set;
  if (message.shards().empty()) check.Fail("shards", "must have at least one entry, got none");
  for (int i = 0; i < message.shards_size(); ++i) {
    set.shards.push_back(DecodeMeasuredShard(message.shards(i), check.In("shards", i)));
  }
  set.batch_size = message.has_batch_size() ? message.batch_size() : kDefaultBatchSize;
  check.InRange("batch_size", set.batch_size, 1, kMaxBatch);
  set.optimizer = check.WordOrDefault("optimizer", message.optimizer(), Optimizer::kSgd);
  return set;
}

}  // namespace

StatusOr<PredictionRequest> DecodePredictionRequest(const v1::PredictComputeRequest& message,
                                                    const RequestLimits& limits) {
  std::int64_t shards = 0;
  for (const v1::ComputeSet& set : message.sets()) shards += set.shards_size();
  // Sets without shards are faults that are found later, but cost a step each.
  const bool admitted =
      std::max<std::int64_t>(shards, message.sets_size()) <= limits.max_prediction_shards;
  RequestFaults faults;
  if (!admitted) {
    faults.over_limits.Add(
        "sets", "the request has {} sets with {} shards, this server takes at most {} shards",
        message.sets_size(), shards, limits.max_prediction_shards);
  }
  Violations& violations = faults.violations;
  const FieldCheck check("", violations);
  PredictionRequest request;
  check.IsText("request_id", message.request_id(), kMaxRequestIdBytes);
  request.request_id = message.request_id();
  request.cost_model = DecodeCostModelRef(message.cost_model(), violations);
  if (message.sets().empty()) check.Fail("sets", "must have at least one entry, got none");
  for (int i = 0; admitted && i < message.sets_size(); ++i) {
    request.sets.push_back(DecodeSet(message.sets(i), check.In("sets", i)));
  }
  NS_RETURN_IF_ERROR(faults.ToStatus());
  return request;
}

v1::PredictComputeRequest EncodePredictionRequest(const PredictionRequest& request) {
  v1::PredictComputeRequest message;
  message.set_request_id(request.request_id);
  *message.mutable_cost_model() = EncodeCostModelRef(request.cost_model);
  for (const ComputeSample& set : request.sets) {
    v1::ComputeSet& encoded = *message.add_sets();
    for (const MeasuredShard& shard : set.shards) {
      *encoded.add_shards() = EncodeMeasuredShard(shard);
    }
    encoded.set_batch_size(set.batch_size);
    encoded.set_optimizer(std::string(ToText(set.optimizer)));
  }
  return message;
}

}  // namespace neuroshard
