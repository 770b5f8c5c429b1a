#include "common/codec/fingerprint.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/sha256.h"

namespace neuroshard {
namespace {

// Bytes to hash. Everything has a fixed width or its length in front, so that no two requests give
// the same bytes.
class CanonicalBytes {
 public:
  void Integer(std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(value >> shift & 0xFF);
  }
  void Integer(std::int64_t value) { Integer(static_cast<std::uint64_t>(value)); }
  void Integer(int value) { Integer(std::int64_t{value}); }
  // -0.0 and 0.0 mean the same.
  void Real(double value) { Integer(std::bit_cast<std::uint64_t>(value == 0 ? 0.0 : value)); }
  // Of a value that is not negative.
  void Optional(const std::optional<std::int64_t>& value) { Integer(value.value_or(-1)); }
  void Text(std::string_view text) {
    Integer(static_cast<std::uint64_t>(text.size()));
    bytes_ += text;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

void Append(const Table& table, CanonicalBytes& out) {
  out.Text(table.name);
  out.Text(table.module);
  out.Integer(table.num_embeddings);
  out.Integer(table.embedding_dim);
  out.Real(table.pooling_factor);
  for (const double share : table.reuse_histogram) out.Real(share);
  out.Text(ToText(table.weight_dtype));
  out.Text(ToText(table.pooling_mode));
  out.Integer(int{table.weighted});
  out.Integer(static_cast<std::uint64_t>(table.features.size()));
  for (const std::string& feature : table.features) out.Text(feature);
}

template <typename E>
void AppendWords(const std::vector<E>& words, CanonicalBytes& out) {
  out.Integer(static_cast<std::uint64_t>(words.size()));
  for (const E word : words) out.Text(ToText(word));
}

void AppendIndices(const std::vector<int>& indices, CanonicalBytes& out) {
  out.Integer(static_cast<std::uint64_t>(indices.size()));
  for (const int index : indices) out.Integer(index);
}

// By name, in the order of names: positions depend on the order of the request.
void AppendTables(const std::vector<int>& indices, const std::vector<Table>& tables,
                  CanonicalBytes& out) {
  std::vector<std::string_view> names;
  for (const int index : indices) names.push_back(tables[static_cast<std::size_t>(index)].name);
  std::sort(names.begin(), names.end());
  out.Integer(static_cast<std::uint64_t>(names.size()));
  for (const std::string_view name : names) out.Text(name);
}

void Append(const TableRule& rule, const std::vector<Table>& tables, CanonicalBytes& out) {
  AppendTables(rule.tables, tables, out);
  AppendWords(rule.sharding_types, out);
  AppendWords(rule.compute_kernels, out);
  AppendIndices(rule.ranks, out);
  AppendIndices(rule.forbidden_ranks, out);
  AppendIndices(rule.hosts, out);
  AppendIndices(rule.forbidden_hosts, out);
  out.Integer(rule.max_shards);
  out.Integer(rule.min_column_width);
  out.Integer(int{rule.distinct_ranks});
}

void Append(const std::vector<TableGroup>& groups, const std::vector<Table>& tables,
            CanonicalBytes& out) {
  out.Integer(static_cast<std::uint64_t>(groups.size()));
  for (const TableGroup& group : groups) {
    AppendTables(group.tables, tables, out);
    out.Text(ToText(group.level));
  }
}

void Append(const Constraints& constraints, const std::vector<Table>& tables, CanonicalBytes& out) {
  AppendWords(constraints.sharding_types, out);
  out.Integer(static_cast<std::uint64_t>(constraints.tables.size()));
  for (const TableRule& rule : constraints.tables) Append(rule, tables, out);
  Append(constraints.colocate, tables, out);
  Append(constraints.separate, tables, out);
  out.Integer(constraints.max_shards_per_rank);
  out.Integer(constraints.max_tables_per_rank);
  out.Integer(constraints.max_shards_per_table);
  out.Integer(constraints.min_column_width);
  out.Text(ToText(constraints.column_rule));
}

void Append(const Migration& migration, CanonicalBytes& out) {
  std::vector<const TablePlan*> tables;
  for (const TablePlan& table : migration.previous.tables) tables.push_back(&table);
  std::sort(tables.begin(), tables.end(),
            [](const TablePlan* a, const TablePlan* b) { return a->name < b->name; });
  out.Integer(migration.previous.world_size);
  out.Integer(migration.previous.local_world_size);
  out.Integer(static_cast<std::uint64_t>(tables.size()));
  for (const TablePlan* table : tables) {
    out.Text(table->name);
    out.Text(table->module);
    out.Text(ToText(table->sharding_type));
    out.Text(ToText(table->compute_kernel));
    out.Integer(static_cast<std::uint64_t>(table->shards.size()));
    for (const Shard& shard : table->shards) {
      for (const std::int64_t value :
           {shard.row_offset, shard.rows, shard.col_offset, shard.cols, std::int64_t{shard.rank}}) {
        out.Integer(value);
      }
    }
  }
  out.Optional(migration.budget_bytes);
  out.Real(migration.price_ms_per_gib);
}

// All but `explain`, which changes no plan.
void Append(const SearchOptions& search, CanonicalBytes& out) {
  out.Text(search.strategy);
  out.Integer(search.beam_width);
  out.Integer(search.num_candidates);
  out.Integer(search.max_length);
  out.Integer(search.search_steps);
  out.Integer(std::int64_t{search.time_budget ? search.time_budget->count() : -1});
  out.Integer(search.seed.value_or(0));
  out.Integer(search.max_threads);
  out.Optional(search.refine_steps);
  out.Optional(search.distributed_embeddings.column_slice_threshold_elements);
  out.Optional(search.distributed_embeddings.row_slice_threshold_elements);
  out.Optional(search.distributed_embeddings.data_parallel_threshold_elements);
  out.Real(search.hugectr.bandwidth_ratio);
  out.Real(search.hugectr.work_ratio);
  out.Real(search.hugectr.data_parallel_threshold_gb);
  out.Integer(search.hugectr.iterations);
  out.Integer(int{search.hugectr.hierarchical});
}

}  // namespace

std::string RequestFingerprint(const PlanRequest& request, std::string_view model_name,
                               int model_version) {
  CanonicalBytes out;
  out.Text("neuroshard-request/2");
  std::vector<const Table*> tables;
  for (const Table& table : request.tables) tables.push_back(&table);
  std::sort(tables.begin(), tables.end(),
            [](const Table* a, const Table* b) { return a->name < b->name; });
  out.Integer(static_cast<std::uint64_t>(tables.size()));
  for (const Table* table : tables) Append(*table, out);
  out.Integer(static_cast<std::uint64_t>(request.topology.devices.size()));
  for (const Device& device : request.topology.devices) {
    out.Integer(device.host);
    out.Integer(device.memory_bytes);
  }
  out.Real(request.topology.bandwidths.device_memory_bytes_per_s);
  out.Real(request.topology.bandwidths.intra_host_bytes_per_s);
  out.Real(request.topology.bandwidths.inter_host_bytes_per_s);
  out.Integer(request.global_batch_size);
  out.Text(ToText(request.optimizer));
  out.Text(ToText(request.memory.rule));
  out.Real(request.memory.reserve_fraction);
  out.Integer(request.memory.reserve_bytes);
  Append(request.constraints, request.tables, out);
  out.Integer(int{request.migration.has_value()});
  if (request.migration) Append(*request.migration, out);
  Append(request.search, out);
  out.Text(model_name);
  out.Integer(model_version);
  return Sha256Hex(out.bytes());
}

}  // namespace neuroshard
