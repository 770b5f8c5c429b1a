#include "server/search/distributed_embeddings/distributed_embeddings_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/failure_reason.h"
#include "common/base/positions.h"
#include "common/base/violations.h"
#include "common/domain/shard_layout.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/lay_out.h"
#include "server/search/placement/placement.h"

namespace neuroshard {
namespace {

void LayOutColumns(const Table& table, const std::vector<RankColumns>& holders, TablePlan& plan) {
  std::int64_t offset = 0;
  for (const RankColumns& holder : holders) {
    plan.shards.push_back({.rows = table.num_embeddings,
                           .col_offset = offset,
                           .cols = holder.cols,
                           .rank = holder.rank});
    offset += holder.cols;
  }
  plan.sharding_type = holders.size() == 1 ? ShardingType::kTableWise : ShardingType::kColumnWise;
}

void LayOutOnAllRanks(const Table& table, SlicingGroup group, int num_ranks, TablePlan& plan) {
  const bool replicated = group == SlicingGroup::kReplicated;
  plan.sharding_type = replicated ? ShardingType::kDataParallel : ShardingType::kRowWiseSubset;
  plan.compute_kernel = replicated ? ComputeKernel::kDense : ComputeKernel::kFused;
  const Block columns = {0, table.embedding_dim};
  const auto all = Positions<int>(static_cast<std::size_t>(num_ranks));
  plan.shards = LayOut(table, plan.sharding_type, {&columns, 1}, all, {{0, num_ranks}}, {});
}

// FAILED_PRECONDITION where ranks or hosts lack room; another plan may fit.
Status CheckRoom(const PlanRequest& request, const Plan& plan) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> faults;
  for (const Violation& fault : CheckPlan(request, plan)) {
    if (fault.field == "plan.tables") faults.push_back(fault.description);
  }
  if (faults.empty()) return absl::OkStatus();
  if (faults.size() > kNamed) {
    faults.resize(kNamed);  // CheckPlan does not list them all either
    faults.emplace_back("and others");
  }
  return WithReason(
      FailedPrecondition("no plan was found: the plan of '{}' does not fit: {}",
                         request.search.strategy, fmt::format("{}", fmt::join(faults, "; "))),
      FailureReason::kNoPlanFound);
}

}  // namespace

Plan DistributedEmbeddingsStrategy::LayOut(const PlanRequest& request,
                                           std::optional<std::int64_t> threshold_elements) const {
  const DistributedEmbeddingsOptions& options = request.search.distributed_embeddings;
  const int num_ranks = request.topology.num_ranks();
  Plan plan = UnplacedTables(request);
  std::vector<TableExtent> sliced;
  std::vector<std::size_t> sliced_index;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    const Table& table = request.tables[t];
    const TableExtent extent{table.num_embeddings, table.embedding_dim};
    const SlicingGroup group = SlicingGroupOf(extent, options, num_ranks);
    if (group == SlicingGroup::kTableSliced) {
      sliced.push_back(extent);
      sliced_index.push_back(t);
    } else {
      LayOutOnAllRanks(table, group, num_ranks, plan.tables[t]);
    }
  }
  const auto widths = SliceColumns(sliced, threshold_elements, num_ranks, kColumnAlignment);
  const PlacedSlices placed = PlaceSlices(sliced, widths, num_ranks, placement_);
  for (std::size_t i = 0; i < sliced.size(); ++i) {
    LayOutColumns(request.tables[sliced_index[i]], placed.holders[i], plan.tables[sliced_index[i]]);
  }
  if (options.gpu_embedding_size_elements) {
    for (const auto& of_rank :
         OffloadedTables(sliced, placed, *options.gpu_embedding_size_elements)) {
      for (const int table : of_rank) {
        plan.tables[sliced_index[static_cast<std::size_t>(table)]].compute_kernel =
            ComputeKernel::kOffload;
      }
    }
  }
  return plan;
}

Status DistributedEmbeddingsStrategy::Search(SearchContext& context) const {
  if (context.ShouldStop()) return absl::OkStatus();
  const PlanRequest& request = context.request();
  const DistributedEmbeddingsOptions& options = request.search.distributed_embeddings;
  if (options.gpu_embedding_size_elements && request.topology.host_memory_bytes.empty()) {
    Violations violations;
    violations.Add("search.distributed_embeddings.gpu_embedding_size_elements",
                   "needs topology.hosts[].host_memory_bytes");
    return violations.ToStatus();
  }
  std::optional<std::int64_t> threshold = options.column_slice_threshold_elements;
  Plan plan = LayOut(request, threshold);
  Status fits = CheckRoom(request, plan);
  // The peer's automatic rule cuts nothing for want of memory. Where a table is larger than every
  // rank, the largest threshold of its size halved, and halved again, that fits is what a user of
  // the peer would state.
  if (!fits.ok() && !threshold.has_value() && LeastPieces(request).size() > request.tables.size()) {
    std::int64_t elements = 0;
    for (const Table& table : request.tables) {
      elements = std::max(elements, table.num_embeddings * table.embedding_dim);
    }
    for (threshold = elements / 2; !fits.ok() && *threshold > 0; threshold = *threshold / 2) {
      if (context.ShouldStop()) return absl::OkStatus();
      Plan cut = LayOut(request, threshold);
      if (cut == plan) continue;
      plan = std::move(cut);
      fits = CheckRoom(request, plan);
    }
  }
  NS_RETURN_IF_ERROR(fits);
  ++context.statistics().plans_evaluated;
  return context.Improve(std::move(plan));
}

}  // namespace neuroshard
