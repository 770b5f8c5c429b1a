// PredictComputeRequest <-> the sets it asks about. Ranges and defaults are those of planner.proto.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/codec/request_codec.h"
#include "common/domain/measurement.h"
#include "common/domain/plan_request.h"
#include "neuroshard/v1/planner.pb.h"

namespace neuroshard {

// Sets of shards to be priced, each as a sample that nobody measures: no sample_id, no seed.
struct PredictionRequest {
  std::string request_id;
  CostModelRef cost_model;
  std::vector<ComputeSample> sets;

  bool operator==(const PredictionRequest&) const = default;
};

// A Violation for every faulty field ("sets[3].shards[0].rows"), and for more than
// `max_prediction_shards` in all sets together, as in RequestFaults.
StatusOr<PredictionRequest> DecodePredictionRequest(const v1::PredictComputeRequest& message,
                                                    const RequestLimits& limits);

// The inverse, without sample ids and seeds.
v1::PredictComputeRequest EncodePredictionRequest(const PredictionRequest& request);

}  // namespace neuroshard
