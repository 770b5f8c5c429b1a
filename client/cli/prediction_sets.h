// Questions of `predict`, made from a request or read from a PredictComputeRequest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/input_file.h"
#include "common/base/status.h"
#include "common/codec/prediction_codec.h"

namespace neuroshard {

// Sets that the tables of a request become.
enum class TableSets { kEachAlone, kTogether };

// Over what the file says.
struct PredictionConditions {
  std::vector<std::int64_t> batch_sizes;  // empty: the file's
  std::optional<Optimizer> optimizer;
};

// A decoded question, and the warnings that go with it.
struct PredictionQuestion {
  PredictionRequest request;
  std::vector<std::string> warnings;  // what decoding had to assume, and what sets cannot say
};

// All sets at the first batch size, then all at the next. Of a request: whole tables, at its global
// batch size and optimizer. INVALID_ARGUMENT lists every faulty field, or says that the sets of a
// file cannot be taken together.
StatusOr<PredictionQuestion> MakePredictionQuestion(const PredictionInput& input, TableSets tables,
                                                    const PredictionConditions& conditions);

}  // namespace neuroshard
