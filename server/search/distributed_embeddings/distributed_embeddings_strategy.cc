#include "server/search/distributed_embeddings/distributed_embeddings_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "common/base/failure_reason.h"
#include "common/base/positions.h"
#include "common/base/violations.h"
#include "common/domain/shard_layout.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/lay_out.h"
#include "server/search/placement/placement.h"

namespace neuroshard {
namespace {

std::optional<double> Positive(std::optional<std::int64_t> threshold) {
  if (!threshold.has_value() || *threshold <= 0) return std::nullopt;
  return static_cast<double>(*threshold);
}

std::optional<double> AutomaticThreshold(std::span<const TableExtent> tables, int num_ranks) {
  const std::size_t ranks = static_cast<std::size_t>(num_ranks);
  if (tables.empty() || tables.size() >= ranks) return std::nullopt;
  std::priority_queue<double> sizes;
  for (const TableExtent& table : tables) sizes.push(table.elements());
  double threshold = 0;
  while (sizes.size() < ranks) {
    const double largest = sizes.top();
    sizes.pop();
    threshold = largest - 1;
    sizes.push(std::floor(largest / 2));
    sizes.push(std::floor(largest / 2));
  }
  return threshold;
}

struct Slice {
  double elements = 0;
  int table = 0;
};

// `back`: forth and back, instead of forth alone.
std::vector<int> Deal(const std::vector<Slice>& slices, std::size_t ranks, bool back) {
  std::vector<int> rank_of(slices.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const std::size_t turn = i % (back ? 2 * ranks : ranks);
    rank_of[i] = static_cast<int>(turn < ranks ? turn : 2 * ranks - 1 - turn);
  }
  return rank_of;
}

std::vector<int> FillLeast(const std::vector<Slice>& slices, std::size_t ranks) {
  struct Load {
    double elements = 0;
    std::vector<int> tables;
  };
  std::vector<Load> loads(ranks);
  const auto less = [&](std::size_t a, std::size_t b) {
    return std::tie(loads[a].elements, loads[a].tables, a) <
           std::tie(loads[b].elements, loads[b].tables, b);
  };
  std::set<std::size_t, decltype(less)> order(less);
  for (std::size_t r = 0; r < ranks; ++r) order.insert(r);
  std::vector<std::size_t> bin_of(slices.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const std::size_t least = *order.begin();
    order.erase(order.begin());
    bin_of[i] = least;
    loads[least].elements += slices[i].elements;
    loads[least].tables.push_back(slices[i].table);
    order.insert(least);
  }
  std::vector<int> rank_of_bin(ranks);
  int next = 0;
  for (const std::size_t bin : order) rank_of_bin[bin] = next++;
  return Mapped<int>(bin_of, [&](const std::size_t bin) { return rank_of_bin[bin]; });
}

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

Plan SlicedPlan(const PlanRequest& request, SlicePlacement placement,
                std::optional<std::int64_t> threshold_elements) {
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
  const PlacedSlices placed = PlaceSlices(sliced, widths, num_ranks, placement);
  for (std::size_t i = 0; i < sliced.size(); ++i) {
    LayOutColumns(request.tables[sliced_index[i]], placed.holders[i], plan.tables[sliced_index[i]]);
  }
  if (options.gpu_embedding_size_elements) {
    for (const auto& of_rank :
         OffloadedTables(sliced, placed, *options.gpu_embedding_size_elements)) {
      for (const int table : of_rank) {
        plan.tables[At(sliced_index, table)].compute_kernel = ComputeKernel::kOffload;
      }
    }
  }
  return plan;
}

}  // namespace

SlicingGroup SlicingGroupOf(const TableExtent& table, const DistributedEmbeddingsOptions& options,
                            int num_ranks) {
  if (num_ranks == 1) return SlicingGroup::kTableSliced;
  const auto replicate = Positive(options.data_parallel_threshold_elements);
  if (replicate && table.elements() <= *replicate) return SlicingGroup::kReplicated;
  const auto cut_rows = Positive(options.row_slice_threshold_elements);
  if (cut_rows && table.elements() >= *cut_rows) return SlicingGroup::kRowSliced;
  return SlicingGroup::kTableSliced;
}

std::vector<std::vector<std::int64_t>> SliceColumns(std::span<const TableExtent> tables,
                                                    std::optional<std::int64_t> threshold_elements,
                                                    int num_ranks, std::int64_t granule) {
  std::optional<double> threshold = Positive(threshold_elements);
  if (!threshold) threshold = AutomaticThreshold(tables, num_ranks);
  std::vector<std::vector<std::int64_t>> widths;
  widths.reserve(tables.size());
  for (const TableExtent& table : tables) {
    const std::int64_t granules = (table.cols + granule - 1) / granule;
    const std::int64_t most = std::min<std::int64_t>(num_ranks, granules);
    std::int64_t slices = 1;
    if (threshold) {
      for (double size = table.elements(); size > *threshold && slices < most; size /= 2) {
        slices *= 2;
      }
    }
    slices = std::min(slices, most);
    std::vector<std::int64_t>& of_table = widths.emplace_back();
    for (std::int64_t s = 0; s < slices; ++s) {
      of_table.push_back((granules / slices + (s < granules % slices ? 1 : 0)) * granule);
    }
    of_table.back() -= granules * granule - table.cols;
  }
  return widths;
}

PlacedSlices PlaceSlices(std::span<const TableExtent> tables,
                         const std::vector<std::vector<std::int64_t>>& widths, int num_ranks,
                         SlicePlacement placement) {
  std::vector<Slice> slices;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    for (const std::int64_t cols : widths[t]) {
      slices.push_back(
          {static_cast<double>(tables[t].rows) * static_cast<double>(cols), static_cast<int>(t)});
    }
  }
  if (placement != SlicePlacement::kBasic) {
    std::ranges::sort(slices, [](const Slice& a, const Slice& b) {
      return std::tie(a.elements, a.table) > std::tie(b.elements, b.table);
    });
  }
  const std::size_t ranks = static_cast<std::size_t>(num_ranks);
  const bool back = placement == SlicePlacement::kMemoryBalanced;
  const std::vector<int> rank_of = placement == SlicePlacement::kMemoryOptimized
                                       ? FillLeast(slices, ranks)
                                       : Deal(slices, ranks, back);
  std::vector<std::vector<int>> ranks_of_table(tables.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    At(ranks_of_table, slices[i].table).push_back(rank_of[i]);
  }
  PlacedSlices placed;
  placed.tables_of_rank.resize(ranks);
  // The peer deals forth to all ranks first.
  const auto deals_back = [&](std::size_t i) { return back && i % (2 * ranks) >= ranks; };
  for (const bool in_turn_back : {false, true}) {
    for (std::size_t i = 0; i < slices.size(); ++i) {
      if (deals_back(i) != in_turn_back) continue;
      std::vector<int>& of_rank = At(placed.tables_of_rank, rank_of[i]);
      if (std::ranges::find(of_rank, slices[i].table) == of_rank.end()) {
        of_rank.push_back(slices[i].table);
      }
    }
  }
  std::vector<std::vector<RankColumns>>& held = placed.holders;
  held.resize(tables.size());
  for (std::size_t t = 0; t < tables.size(); ++t) {
    std::ranges::sort(ranks_of_table[t]);
    for (std::size_t s = 0; s < ranks_of_table[t].size(); ++s) {
      const int rank = ranks_of_table[t][s];
      if (held[t].empty() || held[t].back().rank != rank) held[t].push_back({rank, 0});
      held[t].back().cols += widths[t][s];
    }
  }
  return placed;
}

std::vector<std::vector<int>> OffloadedTables(std::span<const TableExtent> tables,
                                              const PlacedSlices& placed,
                                              std::int64_t gpu_embedding_size) {
  std::vector<std::vector<int>> offloaded;
  for (std::size_t rank = 0; rank < placed.tables_of_rank.size(); ++rank) {
    const std::vector<int>& held = placed.tables_of_rank[rank];
    std::vector<double> elements;
    for (const int t : held) {
      const std::size_t table = static_cast<std::size_t>(t);
      const auto& holders = placed.holders[table];
      const auto here = std::ranges::find_if(
          holders, [&](const RankColumns& of) { return of.rank == static_cast<int>(rank); });
      elements.push_back(static_cast<double>(tables[table].rows) * static_cast<double>(here->cols));
    }
    double sum = 0;
    std::vector<bool> goes(held.size());
    for (const std::size_t i :
         PositionsDescending(held.size(), [&](std::size_t at) { return -elements[at]; })) {
      sum += elements[i];
      goes[i] = sum > static_cast<double>(gpu_embedding_size);
    }
    std::vector<int>& of_rank = offloaded.emplace_back();
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (goes[i]) of_rank.push_back(held[i]);
    }
  }
  return offloaded;
}

Status RunDistributedEmbeddings(SearchContext& context, SlicePlacement placement) {
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
  Plan plan = SlicedPlan(request, placement, threshold);
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
      Plan cut = SlicedPlan(request, placement, threshold);
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
