#include "common/codec/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "common/base/sha256.h"
#include "common/domain/kernel_limits.h"
#include "common/domain/table_names.h"

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

// Fields that came later: a request without them keeps its fingerprint. At the end, so that it
// stays plain what is what.
void AppendLater(const Table& table, std::size_t position, CanonicalBytes& out) {
  if (table.kind == TableKind::kEmbeddingBag && table.pooling_factors.empty()) return;
  out.Integer(static_cast<std::uint64_t>(position));
  out.Text(ToText(table.kind));
  out.Integer(static_cast<std::uint64_t>(table.pooling_factors.size()));
  for (const double factor : table.pooling_factors) out.Real(factor);
}

// By name, then by module.
template <typename Named>
std::vector<const Named*> InOrder(const std::vector<Named>& tables) {
  std::vector<const Named*> order;
  for (const Named& table : tables) order.push_back(&table);
  std::sort(order.begin(), order.end(), [](const Named* a, const Named* b) {
    return std::tie(a->name, a->module) < std::tie(b->name, b->module);
  });
  return order;
}

// A field that came later still: in the hash only where it is given, after its name.
class LaterFields {
 public:
  explicit LaterFields(CanonicalBytes& out) : out_(out) {}

  void Word(bool given, std::string_view name, std::string_view word) {
    if (given) out_.Text(name), out_.Text(word);
  }
  void Real(std::string_view name, double value, double absent) {
    if (value != absent) out_.Text(name), out_.Real(value);
  }
  void Integer(std::string_view name, std::int64_t value, std::int64_t absent) {
    if (value != absent) out_.Text(name), out_.Integer(value);
  }
  template <typename T>
  void List(std::string_view name, const std::vector<T>& values) {
    if (values.empty()) return;
    out_.Text(name);
    out_.Integer(static_cast<std::uint64_t>(values.size()));
    for (const T value : values) {
      if constexpr (std::is_floating_point_v<T>) {
        out_.Real(value);
      } else {
        out_.Integer(value);
      }
    }
  }

 private:
  CanonicalBytes& out_;
};

void AppendLater(const std::vector<const Table*>& tables, const PlanRequest& request,
                 CanonicalBytes& out) {
  LaterFields later(out);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const Table& table = *tables[i];
    const std::string path = fmt::format("tables[{}].", i);
    later.Word(table.output_dtype.has_value(), path + "output_dtype",
               ToText(table.output_dtype.value_or(DataType::kFp32)));
    later.List(path + "num_poolings", table.num_poolings);
    later.List(path + "feature_batch_sizes", table.feature_batch_sizes);
    later.List(path + "batch_pooling_factors", table.batch_pooling_factors);
    later.Integer(path + "hot_row_blocks", int{table.hot_row_blocks}, 0);
    later.Integer(path + "max_l1_cache_bytes", table.max_l1_cache_bytes.value_or(-1), -1);
    later.Integer(path + "l2_cache_bytes", table.l2_cache_bytes, 0);
    later.Integer(path + "allocated_rows", table.allocated_rows, 0);
    later.Integer(path + "extra_bytes_per_row", table.extra_bytes_per_row, 0);
  }
  if (request.migration.has_value()) {
    for (const ShardingType type : request.migration->only_types) {
      later.Word(true, "migration.only_types", ToText(type));
    }
  }
  const Topology& topology = request.topology;
  for (std::size_t i = 0; i < topology.devices.size(); ++i) {
    later.Integer(fmt::format("devices[{}].max_host_memory_bytes", i),
                  topology.devices[i].max_host_memory_bytes, 0);
    later.Real(fmt::format("devices[{}].compute_speed", i), topology.devices[i].compute_speed, 1);
    later.Integer(fmt::format("devices[{}].max_ssd_bytes", i), topology.devices[i].max_ssd_bytes,
                  0);
  }
  later.List("host_memory_bytes", topology.host_memory_bytes);
  later.List("ssd_bytes", topology.ssd_bytes);
  const Bandwidths& bandwidths = topology.bandwidths;
  later.Real("host_to_device_bytes_per_s", bandwidths.host_to_device_bytes_per_s,
             Bandwidths().host_to_device_bytes_per_s);
  later.Real("host_memory_bytes_per_s", bandwidths.host_memory_bytes_per_s,
             Bandwidths().host_memory_bytes_per_s);
  later.Real("ssd_bytes_per_s", bandwidths.ssd_bytes_per_s, Bandwidths().ssd_bytes_per_s);
  later.Integer("gpu_embedding_size_elements",
                request.search.distributed_embeddings.gpu_embedding_size_elements.value_or(0), 0);
  later.Word(request.search.objective != PlanObjective::kMaxOfMeans, "objective",
             ToText(request.search.objective));
  later.Integer("pod_size", topology.pod_size, 1);
  // Of a plan it decides how wide a shard may be, and nothing else.
  const bool cuda_is_limited = std::any_of(tables.begin(), tables.end(), [](const Table* table) {
    return table->embedding_dim > kernel_limits::kFbgemmCuda.max_columns;
  });
  later.Word(cuda_is_limited && topology.compute_device.has_value(), "compute_device",
             ToText(topology.compute_device.value_or(ComputeDevice::kCuda)));
  later.Word(request.pipeline_type.has_value(), "pipeline_type",
             ToText(request.pipeline_type.value_or(PipelineType::kNone)));
  const QuantizedComms& comms = request.quantized_comms;
  later.Word(comms.forward_dtype.has_value(), "forward_dtype",
             ToText(comms.forward_dtype.value_or(DataType::kFp32)));
  later.Word(comms.backward_dtype.has_value(), "backward_dtype",
             ToText(comms.backward_dtype.value_or(DataType::kFp32)));
  for (std::size_t i = 0; i < request.constraints.tables.size(); ++i) {
    later.Real(fmt::format("constraints.tables[{}].cache_load_factor", i),
               request.constraints.tables[i].cache_load_factor, 0);
    later.Integer(fmt::format("constraints.tables[{}].row_multiple", i),
                  request.constraints.tables[i].row_multiple, 0);
    const auto proportion = request.constraints.tables[i].row_proportion;
    later.Word(proportion.has_value(), fmt::format("constraints.tables[{}].row_proportion", i),
               ToText(proportion.value_or(RowProportion::kMemory)));
  }
  if (!request.migration) return;
  const std::vector<const TablePlan*> previous = InOrder(request.migration->previous.tables);
  for (std::size_t i = 0; i < previous.size(); ++i) {
    later.Real(fmt::format("migration.previous.tables[{}].cache_load_factor", i),
               previous[i]->cache_load_factor, 0);
  }
}

// Of devices that are named; their bandwidths are in the topology's already. A request without one
// keeps its fingerprint.
void AppendLater(const std::optional<Fabric>& fabric, CanonicalBytes& out) {
  if (!fabric) return;
  out.Text("fabric");
  out.Real(fabric->intra_host.latency_us);
  out.Real(fabric->inter_host.latency_us);
}

// Of the ranks whose compute another model prices than the request's own.
void AppendDeviceModels(const PlanRequest& request, std::span<const DeviceCostModel> models,
                        const CostModelRef& own, CanonicalBytes& out) {
  std::map<std::string_view, std::string> words;  // by device
  for (const DeviceCostModel& of : models) {
    if (of.model.name == own.name && of.model.version == own.version) continue;
    words[of.device] = fmt::format("{}/{}", of.model.name, of.model.version);
    if (!of.model.digest.empty()) words[of.device] += "@" + of.model.digest;
  }
  if (words.empty()) return;
  LaterFields later(out);
  const std::vector<Device>& devices = request.topology.devices;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto word = words.find(devices[i].name);
    if (word == words.end()) continue;
    later.Word(true, fmt::format("devices[{}].cost_model", i), word->second);
  }
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

// By the texts that refer to them, in their order: positions depend on the order of the request.
void AppendTables(const std::vector<int>& indices, const TableNames& names, CanonicalBytes& out) {
  std::vector<std::string_view> texts = names.ReferencesTo(indices);
  std::sort(texts.begin(), texts.end());
  out.Integer(static_cast<std::uint64_t>(texts.size()));
  for (const std::string_view text : texts) out.Text(text);
}

void Append(const TableRule& rule, const TableNames& names, CanonicalBytes& out) {
  AppendTables(rule.tables, names, out);
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

void Append(const std::vector<TableGroup>& groups, const TableNames& names, CanonicalBytes& out) {
  out.Integer(static_cast<std::uint64_t>(groups.size()));
  for (const TableGroup& group : groups) {
    AppendTables(group.tables, names, out);
    out.Text(ToText(group.level));
  }
}

void Append(const Constraints& constraints, const TableNames& names, CanonicalBytes& out) {
  AppendWords(constraints.sharding_types, out);
  out.Integer(static_cast<std::uint64_t>(constraints.tables.size()));
  for (const TableRule& rule : constraints.tables) Append(rule, names, out);
  Append(constraints.colocate, names, out);
  Append(constraints.separate, names, out);
  out.Integer(constraints.max_shards_per_rank);
  out.Integer(constraints.max_tables_per_rank);
  out.Integer(constraints.max_shards_per_table);
  out.Integer(constraints.min_column_width);
  out.Text(ToText(constraints.column_rule));
}

void Append(const Migration& migration, CanonicalBytes& out) {
  const std::vector<const TablePlan*> tables = InOrder(migration.previous.tables);
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
                               int model_version, std::span<const DeviceCostModel> device_models,
                               std::string_view model_digest) {
  CanonicalBytes out;
  out.Text("neuroshard-request/2");
  const std::vector<const Table*> tables = InOrder(request.tables);
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
  Append(request.constraints, TableNames(request.tables), out);
  out.Integer(int{request.migration.has_value()});
  if (request.migration) Append(*request.migration, out);
  Append(request.search, out);
  out.Text(model_name);
  out.Integer(model_version);
  for (std::size_t i = 0; i < tables.size(); ++i) AppendLater(*tables[i], i, out);
  AppendLater(request.topology.fabric, out);
  AppendLater(tables, request, out);
  if (device_models.empty()) device_models = request.device_cost_models;
  AppendDeviceModels(request, device_models, {std::string(model_name), model_version}, out);
  LaterFields(out).Word(!model_digest.empty(), "cost_model.digest", model_digest);
  return Sha256Hex(out.bytes());
}

}  // namespace neuroshard
