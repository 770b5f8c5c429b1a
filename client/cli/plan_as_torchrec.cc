#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cli/plan_output.h"
#include "common/domain/kernel_limits.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table_names.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {
namespace {

// The position of every rank on its host.
std::vector<int> LocalRanks(const v1::Topology& topology) {
  std::vector<int> local;
  for (const v1::HostGroup& group : topology.hosts()) {
    const int count = group.has_count() ? group.count() : 1;
    for (int host = 0; host < count; ++host) {
      for (int device = 0; device < group.num_devices(); ++device) local.push_back(device);
    }
  }
  return local;
}

bool CutsRows(const v1::TablePlan& table) {
  const std::optional<ShardingType> type = FromText<ShardingType>(table.sharding_type());
  return type == ShardingType::kRowWise || type == ShardingType::kTableRowWise ||
         type == ShardingType::kGridShard;
}

// Whether its rows are in other blocks than TorchRec looks ordinary tables up in.
bool HasOtherBlocks(const v1::TablePlan& table) {
  if (FromText<ShardingType>(table.sharding_type()) != ShardingType::kRowWise) return false;
  std::int64_t rows = 0;
  for (const v1::Shard& shard : table.shards()) rows += shard.rows();
  if (rows == 0) return false;
  const std::vector<Block> blocks = CeilBlocks(rows, table.shards_size());
  return !std::equal(
      table.shards().begin(), table.shards().end(), blocks.begin(), blocks.end(),
      [](const v1::Shard& shard, const Block& block) { return shard.rows() == block.size; });
}

// Why kernels cannot look a table up; empty: they can. FBGEMM's dense one on CPUs takes all columns.
std::string WhyNotLookedUp(const v1::TablePlan& table, ComputeDevice device) {
  const KernelLimits& limits = FbgemmOn(device);
  const bool any =
      device == ComputeDevice::kCpu && table.compute_kernel() == ToText(ComputeKernel::kDense);
  std::int64_t dim = 0;
  for (const v1::Shard& shard : table.shards()) {
    if (shard.cols() > limits.max_columns) {
      return fmt::format("has a shard of {} columns, and {} takes at most {}", shard.cols(),
                         limits.kernels, limits.max_columns);
    }
    dim = std::max(dim, shard.col_offset() + shard.cols());
  }
  const std::int64_t multiple = any ? 1 : limits.column_multiple;
  if (dim % multiple == 0) return "";
  return fmt::format("has {} columns, and {} takes multiples of {}: pad its embedding_dim to {}",
                     dim, limits.kernels, multiple, (dim + multiple - 1) / multiple * multiple);
}

}  // namespace

std::vector<std::string> TorchRecWarnings(
    const v1::Plan& plan, const google::protobuf::RepeatedPtrField<v1::Table>& tables,
    std::string_view device_type) {
  std::set<std::pair<std::string_view, std::string_view>> means;
  for (const v1::Table& table : tables) {
    if (FromText<PoolingMode>(table.pooling_mode()) == PoolingMode::kMean) {
      means.emplace(table.module(), table.name());
    }
  }
  // The first mean-pooled table of a module that has rows cut, and the first that has none.
  struct Mixture {
    const v1::TablePlan* mean = nullptr;
    const v1::TablePlan* whole_rows = nullptr;
  };
  std::map<std::string_view, Mixture> modules;
  for (const v1::TablePlan& table : plan.tables()) {
    Mixture& mixture = modules[table.module()];
    if (!CutsRows(table)) {
      if (mixture.whole_rows == nullptr) mixture.whole_rows = &table;
    } else if (mixture.mean == nullptr && means.contains({table.module(), table.name()})) {
      mixture.mean = &table;
    }
  }
  std::vector<std::string> warnings;
  for (const auto& [module, mixture] : modules) {
    if (mixture.mean == nullptr || mixture.whole_rows == nullptr) continue;
    warnings.push_back(fmt::format(
        "TorchRec 1.9.2 computes wrong values for module '{}': its table {} is pooled "
        "by mean and {}, beside {}, which is {}; constraints.tables with sharding_types "
        "that cut no rows avoid it",
        module, mixture.mean->name(), mixture.mean->sharding_type(), mixture.whole_rows->name(),
        mixture.whole_rows->sharding_type()));
  }
  for (const v1::TablePlan& table : plan.tables()) {
    if (!HasOtherBlocks(table)) continue;
    warnings.push_back(fmt::format(
        "TorchRec 1.9.2 trains table {} in the plan's blocks of rows (row_multiple, "
        "row_proportion) only if its config has as many in buckets (total_num_buckets) or its "
        "sharder hands over where they begin (neuroshard.torchrec.RowPositions)",
        FullName(table.module(), table.name())));
  }
  std::set<std::string> cuda_alone;
  for (const v1::TablePlan& table : plan.tables()) {
    const auto kernel = FromText<ComputeKernel>(table.compute_kernel());
    if (kernel && TierOf(*kernel) != MemoryTier::kDevice) cuda_alone.insert(table.compute_kernel());
  }
  if (device_type == "cpu" && !cuda_alone.empty()) {
    warnings.push_back(
        fmt::format("TorchRec 1.9.2 runs {} on CUDA devices alone", fmt::join(cuda_alone, ", ")));
  }
  return warnings;
}

StatusOr<std::string> PlanAsTorchRec(const v1::Plan& plan, const v1::Topology& topology,
                                     const std::string& device_type) {
  const std::vector<int> local_ranks = LocalRanks(topology);
  const auto placement = [&](int rank) {
    if (device_type == "cpu") return fmt::format("rank:{}/cpu", rank);
    return fmt::format("rank:{}/{}:{}", rank, device_type,
                       local_ranks.at(static_cast<std::size_t>(rank)));
  };
  const auto device = FromText<ComputeDevice>(device_type).value_or(ComputeDevice::kCuda);
  UnwritableTables refused("TorchRec");
  auto modules = nlohmann::ordered_json::object();
  refused.WriteEach(plan, [&](int, const v1::TablePlan& table, const std::string&) {
    const std::optional<ShardingType> type = FromText<ShardingType>(table.sharding_type());
    const TableKind kind = FromText<TableKind>(table.kind()).value_or(TableKind::kEmbeddingBag);
    if (!type || *type == ShardingType::kRowWiseSubset) {
      return fmt::format(
          "is {}, which TorchRec does not have; constraints.sharding_types can leave it out",
          table.sharding_type());
    }
    if (!IsTypeOf(kind, *type)) {
      return fmt::format("is unpooled and {}, which TorchRec does not run", table.sharding_type());
    }
    const auto kernel = FromText<ComputeKernel>(table.compute_kernel());
    if (kernel && (kernel == ComputeKernel::kOffload || IsDynamic(*kernel))) {
      return fmt::format("is {}, a kernel that TorchRec does not have", table.compute_kernel());
    }
    if (std::string reason = WhyNotLookedUp(table, device); !reason.empty()) return reason;
    auto ranks = nlohmann::ordered_json::array();
    auto shards = nlohmann::ordered_json::array();
    for (const v1::Shard& shard : table.shards()) {
      ranks.push_back(shard.rank());
      shards.push_back({{"shard_offsets", {shard.row_offset(), shard.col_offset()}},
                        {"shard_sizes", {shard.rows(), shard.cols()}},
                        {"placement", placement(shard.rank())}});
    }
    if (*type == ShardingType::kDataParallel) shards = nullptr;
    auto& written = modules[table.module()][table.name()] = {
        {"sharding_type", table.sharding_type()}, {"compute_kernel", table.compute_kernel()}};
    if (table.has_cache_load_factor()) written["cache_load_factor"] = table.cache_load_factor();
    written["ranks"] = ranks;
    written["shards"] = shards;
    return std::string();
  });
  NS_RETURN_IF_ERROR(refused.ToStatus());
  return nlohmann::ordered_json{{"plan", modules}}.dump(2) + '\n';
}

}  // namespace neuroshard
