// Compute at conditions that a measured model has not seen: the price of the nearest measured
// condition, and the difference by formula.
#pragma once

#include <memory>
#include <optional>

#include "server/cost/compute_model.h"
#include "server/cost/model_info.h"
#include "server/cost/pricing_conditions.h"

namespace neuroshard {

// Returns the measured dtype that stands in for rows of `dtype`, which have one byte per value: the
// one with the fewest bytes. None where `dtype` was measured, has two or four bytes (a feature of
// networks), or the model does not state its dtypes.
std::optional<DataType> StandInFor(const ModelCoverage& coverage, DataType dtype);

// Returns the measured optimizer that stands in for partial_rowwise_adam, lamb, lars_sgd or none:
// the one that moves about as many bytes of state. None where the optimizer was measured or is
// another one, or the model does not state its optimizers.
std::optional<Optimizer> StandInFor(const ModelCoverage& coverage, Optimizer optimizer);

// Returns whether lookups without pooling were measured.
bool KnowsUnpooled(const ModelCoverage& coverage);

// Returns whether lookups by this kernel, one of those with rows off the device, were measured.
// Prefetching was never measured: with train_prefetch_sparse_dist the formula stays.
bool KnowsKernel(const ModelCoverage& coverage, std::optional<PipelineType> pipeline,
                 ComputeKernel kernel);

// Returns `measured` itself where it was measured at everything that the conditions have: no rows
// off the device, plain tables, no other types on the wire, no stand-in for the optimizer.
// Otherwise it returns a model whose phi has kAddedColumns more, whose sums enter the cost:
//
//   cost = max(forward' + backward', link), x' = max(x / 2, x + added x)
//
// Here forward and backward are the model's own at the stand-ins (their sum where it does not
// split), and `added` is the time of moved bytes, over the bandwidth of device memory unless
// stated:
// - rows of 1 byte per value: those read forward, and the distinct ones read and written backward,
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
//   type and writes the other. Where casts of fp32 were measured (measured_rates.h) the phi has the
//   values, and the rank's sum of them its time
// - rows off the device: HostTraffic over the link to the host and of slower memories. Where
//   rows are prefetched, what a cache fetches is in `link` alone, all such traffic of the rank: it
//   runs beside the lookups of the batch before, so the rank takes the longer of the two. Under
//   kOffload the device looks nothing up: HostTraffic is the shard's whole price, and its part of
//   the model's phi is 0.
//
// So a cost stays convex where the model's is, and fewer bytes save at most half of it. A shard
// with nothing added costs exactly what the model says. Intervals are the model's where no shard
// has additions; otherwise there are none. Immutable, so thread-safe.
inline constexpr int kAddedColumns = 4;  // forward, backward, link, in ms; values that are cast
std::shared_ptr<const ComputeModel> WithUnmeasured(std::shared_ptr<const ComputeModel> measured,
                                                   const CostModelInfo& info,
                                                   const PricingConditions& conditions);

}  // namespace neuroshard
