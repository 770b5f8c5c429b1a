// Text and JSON of predictions, beside the sets of shards that they are of.
#pragma once

#include <string>

#include "client/cli/text_table.h"
#include "common/codec/prediction_codec.h"
#include "neuroshard/v1/planner.pb.h"

namespace neuroshard {

// A line for each set: its tables, batch size and optimizer, (kWide) forward, backward and total
// time in ms, and the total's interval where the model has intervals; then the model and warnings.
// "-" for what it does not tell apart. `response` has a prediction for each set of `request`.
std::string PredictionsAsTable(const PredictionRequest& request,
                               const v1::PredictComputeResponse& response, const TextStyle& style);

// The PredictComputeResponse with "tables", "batch_size" and "optimizer" in front of each
// prediction.
std::string PredictionsAsJson(const PredictionRequest& request,
                              const v1::PredictComputeResponse& response);

}  // namespace neuroshard
