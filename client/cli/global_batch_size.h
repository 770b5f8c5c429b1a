// Another global batch size for a request.
#pragma once

#include <cstdint>

#include "neuroshard/v1/planner.pb.h"

namespace neuroshard {

// Samples in an iteration; the default where the request states none.
std::int64_t GlobalBatchSizeOf(const v1::ShardPlanRequest& request);

// Feature batch sizes keep their share of it, rounded and at least 1, and a table's stated
// pooling_factor what it had to the ids of its features. Values out of range stay, for the decoder
// to name.
void SetGlobalBatchSize(std::int64_t batch_size, v1::ShardPlanRequest& request);

}  // namespace neuroshard
