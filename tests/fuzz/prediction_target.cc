// PredictCompute from its bytes on the wire to its answer.
#include "common/codec/prediction_codec.h"
#include "server/service/planner_messages.h"
#include "tests/fuzz/wire_request.h"

namespace neuroshard::fuzz {
namespace {

void Predict(std::string_view input) {
  const auto message = Admitted<v1::PredictComputeRequest>(input);
  if (!message.has_value()) return;
  const auto request = DecodePredictionRequest(*message, kSmallLimits);
  if (!request.ok()) return;
  const auto again = DecodePredictionRequest(EncodePredictionRequest(*request), kSmallLimits);
  Promise(again.ok() && *again == *request, "EncodePredictionRequest is the inverse");
  const StopAfterLooks stop(100);
  const auto answer = SmallPlanner().Predict(request->cost_model, request->sets, stop);
  if (!answer.ok()) {
    Promise(!absl::IsInternal(answer.status()), Message(answer.status()));
    return;
  }
  Promise(answer->predictions.size() == request->sets.size(), "every set is predicted");
  (void)EncodePrediction(*answer).SerializeAsString();
}

std::vector<std::string> PredictionSeeds() {
  PredictionRequest request;
  for (const DataType dtype : {DataType::kFp32, DataType::kFp16}) {
    ComputeSample& set = request.sets.emplace_back();
    for (int i = 0; i < 2; ++i) {
      MeasuredShard& shard = set.shards.emplace_back();
      shard.table = "t";
      shard.rows = 1000;
      shard.cols = 16;
      shard.pooling_factor = 3;
      shard.weight_dtype = dtype;
    }
  }
  return {EncodePredictionRequest(request).SerializeAsString()};
}

}  // namespace

FuzzTarget PredictionTarget() { return {"prediction", Predict, PredictionSeeds}; }

}  // namespace neuroshard::fuzz
