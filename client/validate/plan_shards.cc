#include "client/validate/plan_shards.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "common/base/violations.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table_names.h"

namespace neuroshard {
namespace {

void CheckRows(const Table& table, const Shard& shard, ShardingType type, const std::string& field,
               Violations& violations) {
  if (!CutsRows(type)) {
    if (shard.row_offset == 0 && shard.rows == table.num_embeddings) return;
    violations.Add(field + ".rows", "must be all {} rows of the table, got {} from {}",
                   table.num_embeddings, shard.rows, shard.row_offset);
  } else if (shard.row_offset < 0 || shard.rows < 0 ||
             shard.rows > table.num_embeddings - shard.row_offset) {
    violations.Add(field + ".rows", "must lie within the table's {} rows, got {} from {}",
                   table.num_embeddings, shard.rows, shard.row_offset);
  }
}

void CheckShard(const Table& table, const Shard& shard, ShardingType type, int num_ranks,
                const std::string& field, Violations& violations) {
  if (shard.rank < 0 || shard.rank >= num_ranks) {
    violations.Add(field + ".rank", "must be in [0, {}), got {}", num_ranks, shard.rank);
  }
  CheckRows(table, shard, type, field, violations);
  if (shard.col_offset < 0 || shard.cols < 1 ||
      shard.cols > table.embedding_dim - shard.col_offset) {
    violations.Add(field + ".cols", "must lie within the table's {} columns, got {} from {}",
                   table.embedding_dim, shard.cols, shard.col_offset);
  }
}

// Values a sample that the rank has of a table without pooling: a vector for each id.
std::int64_t UnpooledColumns(const MeasuredShard& shard) {
  return std::llround(static_cast<double>(shard.cols) * shard.pooling_factor);
}

void AddIds(const Table& table, const MeasuredShard& shard, ShardingType type, RankIds& ids) {
  const auto features = static_cast<std::int64_t>(std::max<std::size_t>(1, table.features.size()));
  if (CutsRows(type)) {
    ids.cut_features += features;
    ids.cut_ids += shard.pooling_factor;
  } else {
    ids.whole_features += features;
    ids.whole_ids += shard.pooling_factor;
  }
}

void Add(const Table& table, MeasuredShard shard, ShardingType type, RankShards& rank) {
  if (type == ShardingType::kDataParallel) {
    rank.replicas.push_back(std::move(shard));
    return;
  }
  AddIds(table, shard, type, table.weighted ? rank.weighted_ids : rank.ids);
  if (shard.pooling_mode == PoolingMode::kNone) {
    rank.dim_sum += UnpooledColumns(shard);
  } else {
    (CutsRows(type) ? rank.cut_row_columns : rank.dim_sum) += shard.cols;
  }
  // A rank without rows of the table still takes part in its exchange.
  if (shard.rows > 0) rank.shards.push_back(std::move(shard));
}

// Workers cast all-to-alls to fp16 and bf16, and nothing else.
void AddExchangesInFp32(const PlanRequest& request, const Plan& plan,
                        std::vector<std::string>& lines) {
  bool quantized = false;
  for (const auto& dtype :
       {request.quantized_comms.forward_dtype, request.quantized_comms.backward_dtype}) {
    if (dtype.value_or(DataType::kFp32) == DataType::kFp32) continue;
    quantized = true;
    if (IsWireCast(*dtype)) continue;
    lines.push_back(fmt::format("quantized_comms in {} is left out: vectors were exchanged in fp32",
                                ToText(*dtype)));
  }
  if (quantized && AddsPartialSums(plan, request.tables)) {
    lines.push_back(
        "quantized_comms is left out of tables that are cut in rows: their partial sums and "
        "gradients were exchanged in fp32");
  }
}

}  // namespace

MeasuredShard MeasuredShardOf(const Table& table, std::int64_t rows, std::int64_t cols) {
  const double share = static_cast<double>(rows) / static_cast<double>(table.num_embeddings);
  const bool pooled = table.kind == TableKind::kEmbeddingBag;
  return {table.name,
          rows,
          cols,
          table.pooling_factor * share,
          table.reuse_histogram,
          table.weight_dtype,
          pooled ? table.pooling_mode : PoolingMode::kNone,
          pooled && table.weighted};
}

std::vector<std::string> LeftOutOf(const std::vector<Table>& tables) {
  std::vector<std::string> lines;
  if (std::ranges::any_of(tables, [](const Table& table) {
        return table.output_dtype.value_or(DataType::kFp32) != DataType::kFp32;
      })) {
    lines.push_back("output_dtype is left out: lookups give vectors of fp32");
  }
  if (std::ranges::any_of(tables, [](const Table& table) {
        return !table.num_poolings.empty() || !table.feature_batch_sizes.empty();
      })) {
    lines.push_back(
        "num_poolings and feature_batch_sizes are left out: the ids of a sample are one bag");
  }
  return lines;
}

std::vector<std::string> NotMeasuredOf(const PlanRequest& request, const Plan& plan) {
  std::vector<std::string> lines;
  std::set<ComputeKernel> kernels;
  for (const TablePlan& table : plan.tables) kernels.insert(table.compute_kernel);
  const auto add = [&](bool any, std::string_view tables) {
    if (any) lines.push_back(fmt::format("{} were looked up in device memory", tables));
  };
  add(kernels.contains(ComputeKernel::kOffload), "offloaded tables");
  add(std::ranges::any_of(kernels, IsDynamic), "dynamic tables");
  add(kernels.contains(ComputeKernel::kKeyValue), "tables on SSD (key_value)");
  for (std::string& line : LeftOutOf(request.tables)) lines.push_back(std::move(line));
  const Topology& topology = request.topology;
  if (topology.num_ranks() > 1) AddExchangesInFp32(request, plan, lines);
  if (std::ranges::any_of(topology.devices,
                          [](const Device& device) { return device.compute_speed != 1; })) {
    lines.push_back("compute_speed is left out: lookups took what the workers' devices take");
  }
  if (!request.device_cost_models.empty()) {
    lines.push_back("device_cost_models are left out: lookups took what the workers' devices take");
  }
  return lines;
}

std::int64_t RankShards::replica_values() const {
  std::int64_t values = 0;
  for (const MeasuredShard& replica : replicas) values += replica.rows * replica.cols;
  return values;
}

StatusOr<std::vector<RankShards>> ShardsByRank(const PlanRequest& request, const Plan& plan) {
  const int num_ranks = request.topology.num_ranks();
  Violations violations;
  const TableNames names(request.tables);
  const std::vector<int> table_of = TablesOf(plan, request.tables);
  std::vector<bool> planned(request.tables.size());
  std::vector<RankShards> ranks(static_cast<std::size_t>(num_ranks));
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const TablePlan& table_plan = plan.tables[t];
    const std::string field = fmt::format("plan.tables[{}]", t);
    const std::size_t index = static_cast<std::size_t>(table_of[t]);
    if (table_of[t] < 0) {
      violations.Add(field + ".name",
                     names.WhyUnresolved(FullName(table_plan.module, table_plan.name)));
      continue;
    }
    if (planned[index]) {
      violations.Add(field + ".name", "\"{}\" was planned before", names.ReferenceTo(table_of[t]));
      continue;
    }
    const Table& table = request.tables[index];
    planned[index] = true;
    const ShardingType type = table_plan.sharding_type;
    for (std::size_t s = 0; s < table_plan.shards.size(); ++s) {
      const Shard& shard = table_plan.shards[s];
      CheckShard(table, shard, type, num_ranks, fmt::format("{}.shards[{}]", field, s), violations);
      if (!violations.empty()) continue;
      MeasuredShard measured = MeasuredShardOf(table, shard.rows, shard.cols);
      if (table_plan.compute_kernel == ComputeKernel::kFusedUvm ||
          table_plan.compute_kernel == ComputeKernel::kFusedUvmCaching) {
        measured.compute_kernel = table_plan.compute_kernel;
        measured.cache_load_factor = table_plan.cache_load_factor;
      }
      Add(table, std::move(measured), type, ranks[static_cast<std::size_t>(shard.rank)]);
    }
  }
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (planned[i]) continue;
    violations.Add("plan.tables", "table \"{}\" is missing",
                   names.ReferenceTo(static_cast<int>(i)));
  }
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return ranks;
}

}  // namespace neuroshard
