// Compute of shards at conditions that a measured model has not seen: the nearest that it has, and
// the difference by formula.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "server/cost/compute_model.h"
#include "server/cost/model_info.h"
#include "server/cost/pricing_conditions.h"

namespace neuroshard {

// The measured dtype whose price is taken for rows of `dtype`, which have one byte a value: the one
// with the fewest bytes. None: it was measured, networks know it as a feature (two bytes and four),
// or the model does not state its dtypes.
std::optional<DataType> StandInFor(const ModelCoverage& coverage, DataType dtype);

// The measured optimizer whose price is taken for partial_rowwise_adam, lamb or lars_sgd: the one
// that moves about as many bytes of state. None: it was measured, is another, or the model does not
// state its optimizers.
std::optional<Optimizer> StandInFor(const ModelCoverage& coverage, Optimizer optimizer);

// Whether lookups without pooling were measured.
bool KnowsUnpooled(const ModelCoverage& coverage);

// Whether lookups of rows in host memory by this kernel were measured. What a trainer prefetches
// was not: with train_prefetch_sparse_dist the formula stays.
bool KnowsHostMemory(const ModelCoverage& coverage, std::optional<PipelineType> pipeline,
                     ComputeKernel kernel);

// `measured` itself where the conditions ask for nothing that it was not measured at: no rows in
// host memory or on SSD, plain tables, no other types on the wire, no stand-in for the optimizer.
// Otherwise a model whose phi has kAddedColumns more, whose sums go into the cost:
//
//   cost = max(forward' + backward', link), x' = max(x / 2, x + added x)
//
// forward and backward being the model's own at the stand-ins (the sum of both where it does not
// split), and added, in ms, bytes moved over the device's memory bandwidth if nothing else is said:
// - rows of 1 byte a value: those read forward, and the distinct ones read and written backward,
//   less those of the stand-in's rows
// - vectors: written forward, their gradients read backward, by the bytes of the table's
//   output_dtype and the vectors of LookupsOf, less 4 bytes for those of the stand-in. An unpooled
//   table is one of pooling mode "none" to a model that was measured at it. To others it stands as
//   bags of one id, and bags stated by feature stand as a batch of so many samples, as far as the
//   model was measured at such batches; beyond, and where it knows one batch alone, as bags of
//   several ids.
// - optimizer: state of the distinct rows, read and written; lamb and lars_sgd read the row once
//   more for its norm; less the same of the stand-in
// - exchanges in another type than the vectors': two casts, at either end, each of which reads one
//   type and writes the other. Where casts of fp32 were measured (measured_casts.h) the phi has the
//   values, and the rank's sum of them its time
// - rows in host memory or on SSD: HostTraffic over the link to the host and of the SSDs. Where
//   rows are prefetched, what a cache fetches is in `link` alone, all such traffic of the rank: it
//   runs beside the lookups of the batch before, so the rank takes the longer of the two. Under
//   kOffload the device looks nothing up: HostTraffic is the shard's whole price, and its part of
//   the model's phi is 0.
//
// So a cost stays convex where the model's is; what fewer bytes save is half of it at most. Where
// nothing is added, a shard costs what the model says, bit for bit. Intervals are the model's where
// no shard has additions, else there are none.
inline constexpr int kAddedColumns = 4;  // forward, backward, link, in ms; values that are cast
std::shared_ptr<const ComputeModel> WithUnmeasured(std::shared_ptr<const ComputeModel> measured,
                                                   const CostModelInfo& info,
                                                   const PricingConditions& conditions);

}  // namespace neuroshard
