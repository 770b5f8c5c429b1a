// `basic`, `memory_balanced`, `memory_optimized`: the plans of NVIDIA Merlin
// distributed-embeddings.
#pragma once

#include <cstdint>
#include <optional>

#include "server/search/core/strategy.h"
#include "server/search/distributed_embeddings/slice_placement.h"

namespace neuroshard {

// Makes the plan of SliceColumns and PlaceSlices under the request's distributed_embeddings
// options, with cuts at multiples of kColumnAlignment. Replicated tables become data_parallel, row
// sliced ones row_wise_subset over all ranks, which has the peer's blocks of rows. Under
// gpu_embedding_size, tables with an offloaded slice have kOffload; INVALID_ARGUMENT where hosts
// have no memory. The strategy considers no other memory and no cost: FAILED_PRECONDITION, which
// proves nothing, where its plan does not fit. Where a table is larger than every rank and no
// column_slice_threshold is stated, it takes the largest of half the largest table, a quarter and
// so on whose plan fits.
class DistributedEmbeddingsStrategy final : public Strategy {
 public:
  explicit DistributedEmbeddingsStrategy(SlicePlacement placement) : placement_(placement) {}
  Status Search(SearchContext& context) const override;

 private:
  Plan LayOut(const PlanRequest& request, std::optional<std::int64_t> threshold_elements) const;

  SlicePlacement placement_;
};

}  // namespace neuroshard
