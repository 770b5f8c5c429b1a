#include "common/codec/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "common/base/sha256.h"
#include "common/domain/fields.h"
#include "common/domain/kernel_limits.h"
#include "common/domain/table_names.h"

namespace neuroshard {
namespace {

// Bytes to hash. Everything has a fixed width or its length in front, so that no two requests give
// the same bytes.
class CanonicalBytes {
 public:
  // The values one after the other.
  template <typename... Values>
  void operator()(const Values&... values) {
    (Add(values), ...);
  }

  // A field that came after others: it is there only where it is given, after its name, so that a
  // request without it keeps its fingerprint.
  template <typename Value>
  void IfGiven(std::string_view name, const Value& value, const Value& absent = {}) {
    if (value != absent) (*this)(name, value);
  }
  // A value within an entry of a list. Nearly all are absent, and no text is made for those.
  template <typename Value>
  void IfGivenIn(const std::string& entry, const char* name, const Value& value,
                 const Value& absent = {}) {
    if (value != absent) (*this)(entry + name, value);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  void Add(std::uint64_t value) {
    std::array<char, 8> bytes;
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> 8 * i & 0xFF);
    bytes_.append(bytes.data(), bytes.size());
  }
  void Add(std::int64_t value) { Add(static_cast<std::uint64_t>(value)); }
  void Add(int value) { Add(std::int64_t{value}); }
  void Add(bool value) { Add(std::int64_t{value}); }
  // -0.0 and 0.0 mean the same.
  void Add(double value) { Add(std::bit_cast<std::uint64_t>(value == 0 ? 0.0 : value)); }
  void Add(std::string_view text) {
    Add(static_cast<std::uint64_t>(text.size()));
    bytes_ += text;
  }
  void Add(const std::string& text) { Add(std::string_view(text)); }
  void Add(const char* text) { Add(std::string_view(text)); }
  // Values that are not negative.
  void Add(const std::optional<std::int64_t>& value) { Add(value.value_or(-1)); }
  // Only where it is given.
  template <typename E>
  void Add(const std::optional<E>& word) {
    Add(*word);
  }
  template <typename E, typename = decltype(kWords<E>.size())>
  void Add(E word) {
    Add(ToText(word));
  }
  // Adds the shares, whose number is always the same, without a length.
  void Add(const ReuseHistogram& shares) {
    for (const double share : shares) Add(share);
  }
  template <typename T>
  void Add(const std::vector<T>& values) {
    Add(static_cast<std::uint64_t>(values.size()));
    for (const T& value : values) Add(value);
  }

  std::string bytes_;
};

void Append(const Table& table, CanonicalBytes& out) {
  out(table.name, table.module, table.num_embeddings, table.embedding_dim, table.pooling_factor,
      table.reuse_histogram, table.weight_dtype, table.pooling_mode, table.weighted,
      table.features);
}

void AppendLater(const Table& table, std::size_t position, CanonicalBytes& out) {
  if (table.kind == TableKind::kEmbeddingBag && table.pooling_factors.empty()) return;
  out(std::uint64_t{position}, table.kind, table.pooling_factors);
}

// By name, then by module.
template <typename Named>
std::vector<const Named*> InOrder(const std::vector<Named>& tables) {
  std::vector<const Named*> order;
  for (const Named& table : tables) order.push_back(&table);
  std::ranges::sort(order, [](const Named* a, const Named* b) {
    return std::tie(a->name, a->module) < std::tie(b->name, b->module);
  });
  return order;
}

constexpr auto kLaterOfTable =
    NS_MEMBERS(Table, output_dtype, num_poolings, feature_batch_sizes, batch_pooling_factors,
               hot_row_blocks, max_l1_cache_bytes, l2_cache_bytes, allocated_rows,
               extra_bytes_per_row, optimizer, stash_weights);
constexpr auto kLaterOfDevice =
    NS_MEMBERS(Device, max_host_memory_bytes, compute_speed, max_ssd_bytes);
constexpr auto kLaterOfBandwidths =
    NS_MEMBERS(Bandwidths, host_to_device_bytes_per_s, host_memory_bytes_per_s, ssd_bytes_per_s);
constexpr auto kLaterOfRule =
    NS_MEMBERS(TableRule, cache_load_factor, row_multiple, row_proportion);
constexpr auto kLaterOfComms = NS_MEMBERS(QuantizedComms, forward_dtype, backward_dtype);

// Adds those of these fields that are not at their defaults.
template <typename T, typename Members>
void IfGiven(const T& value, const Members& fields, const std::string& entry, CanonicalBytes& out) {
  static const T absent = {};
  const auto add = [&](const auto& field) {
    out.IfGivenIn(entry, field.name, value.*field.member, absent.*field.member);
  };
  std::apply([&](const auto&... field) { (add(field), ...); }, fields);
}

// The fields that came after all others, each in the hash by its name.
void AppendLater(const std::vector<const Table*>& tables, const PlanRequest& request,
                 CanonicalBytes& out) {
  for (std::size_t i = 0; i < tables.size(); ++i) {
    IfGiven(*tables[i], kLaterOfTable, fmt::format("tables[{}].", i), out);
  }
  if (request.migration.has_value()) {
    for (const ShardingType type : request.migration->only_types) {
      out("migration.only_types", type);
    }
  }
  const Topology& topology = request.topology;
  for (std::size_t i = 0; i < topology.devices.size(); ++i) {
    IfGiven(topology.devices[i], kLaterOfDevice, fmt::format("devices[{}].", i), out);
  }
  for (const SharedMemory& of : kSharedMemories) out.IfGiven(of.field, topology.*of.of_hosts);
  IfGiven(topology.bandwidths, kLaterOfBandwidths, "", out);
  out.IfGiven("gpu_embedding_size_elements",
              request.search.distributed_embeddings.gpu_embedding_size_elements);
  out.IfGiven("objective", request.search.objective, PlanObjective::kMaxOfMeans);
  out.IfGiven("effort", request.search.effort, SearchEffort::kDefault);
  for (const PlanGoal& goal : request.search.goals) {
    out("goals.measure", goal.measure);
    out("goals.tolerance", goal.tolerance);
  }
  out.IfGiven("dense_bytes", request.memory.dense_bytes);
  out.IfGiven("pod_size", topology.pod_size, 1);
  // The compute device decides how wide a shard may be, and nothing else of a plan.
  const bool cuda_is_limited = std::ranges::any_of(tables, [](const Table* table) {
    return table->embedding_dim > kernel_limits::kFbgemmCuda.max_columns;
  });
  if (cuda_is_limited) out.IfGiven("compute_device", topology.compute_device);
  out.IfGiven("pipeline_type", request.pipeline_type);
  IfGiven(request.quantized_comms, kLaterOfComms, "", out);
  for (std::size_t i = 0; i < request.constraints.tables.size(); ++i) {
    IfGiven(request.constraints.tables[i], kLaterOfRule, fmt::format("constraints.tables[{}].", i),
            out);
  }
  if (!request.migration) return;
  const std::vector<const TablePlan*> previous = InOrder(request.migration->previous.tables);
  for (std::size_t i = 0; i < previous.size(); ++i) {
    out.IfGiven(fmt::format("migration.previous.tables[{}].cache_load_factor", i),
                previous[i]->cache_load_factor);
  }
}

// Adds the fabric of devices that are named; their bandwidths are in the topology's already. A
// request without one keeps its fingerprint.
void AppendLater(const std::optional<Fabric>& fabric, CanonicalBytes& out) {
  if (fabric) out("fabric", fabric->intra_host.latency_us, fabric->inter_host.latency_us);
}

// Adds the ranks whose compute another model prices than the request's own.
void AppendDeviceModels(const PlanRequest& request, std::span<const DeviceCostModel> models,
                        const CostModelRef& own, CanonicalBytes& out) {
  std::map<std::string_view, std::string> words;  // by device
  for (const DeviceCostModel& of : models) {
    if (of.model.name == own.name && of.model.version == own.version) continue;
    words[of.device] = fmt::format("{}/{}", of.model.name, of.model.version);
    if (!of.model.digest.empty()) words[of.device] += "@" + of.model.digest;
  }
  if (words.empty()) return;
  const std::vector<Device>& devices = request.topology.devices;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto word = words.find(devices[i].name);
    if (word == words.end()) continue;
    out(fmt::format("devices[{}].cost_model", i), word->second);
  }
}

// By the texts that refer to them, in their order: positions depend on the order of the request.
std::vector<std::string_view> Sorted(const std::vector<int>& tables, const TableNames& names) {
  std::vector<std::string_view> texts = names.ReferencesTo(tables);
  std::ranges::sort(texts);
  return texts;
}

void Append(const std::vector<TableGroup>& groups, const TableNames& names, CanonicalBytes& out) {
  out(std::uint64_t{groups.size()});
  for (const TableGroup& group : groups) out(Sorted(group.tables, names), group.level);
}

void Append(const Constraints& constraints, const TableNames& names, CanonicalBytes& out) {
  out(constraints.sharding_types, std::uint64_t{constraints.tables.size()});
  for (const TableRule& rule : constraints.tables) {
    out(Sorted(rule.tables, names), rule.sharding_types, rule.compute_kernels, rule.ranks,
        rule.forbidden_ranks, rule.hosts, rule.forbidden_hosts, rule.max_shards,
        rule.min_column_width, rule.distinct_ranks);
  }
  Append(constraints.colocate, names, out);
  Append(constraints.separate, names, out);
  out(constraints.max_shards_per_rank, constraints.max_tables_per_rank,
      constraints.max_shards_per_table, constraints.min_column_width, constraints.column_rule);
}

void Append(const Migration& migration, CanonicalBytes& out) {
  const std::vector<const TablePlan*> tables = InOrder(migration.previous.tables);
  out(migration.previous.world_size, migration.previous.local_world_size,
      std::uint64_t{tables.size()});
  for (const TablePlan* table : tables) {
    out(table->name, table->module, table->sharding_type, table->compute_kernel,
        std::uint64_t{table->shards.size()});
    for (const Shard& shard : table->shards) {
      out(shard.row_offset, shard.rows, shard.col_offset, shard.cols, shard.rank);
    }
  }
  out(migration.budget_bytes, migration.price_ms_per_gib);
}

// All but `explain`, which changes no plan.
void Append(const SearchOptions& search, CanonicalBytes& out) {
  out(search.strategy, search.beam_width, search.num_candidates, search.max_length,
      search.search_steps, std::int64_t{search.time_budget ? search.time_budget->count() : -1},
      search.seed.value_or(0), search.max_threads, search.refine_steps);
  const DistributedEmbeddingsOptions& peer = search.distributed_embeddings;
  out(peer.column_slice_threshold_elements, peer.row_slice_threshold_elements,
      peer.data_parallel_threshold_elements);
  out(search.hugectr.bandwidth_ratio, search.hugectr.work_ratio,
      search.hugectr.data_parallel_threshold_gb, search.hugectr.iterations,
      search.hugectr.hierarchical);
}

}  // namespace

std::string RequestFingerprint(const PlanRequest& request, std::string_view model_name,
                               int model_version, std::span<const DeviceCostModel> device_models,
                               std::string_view model_digest) {
  CanonicalBytes out;
  const std::vector<const Table*> tables = InOrder(request.tables);
  out("neuroshard-request/2", std::uint64_t{tables.size()});
  for (const Table* table : tables) Append(*table, out);
  const Topology& topology = request.topology;
  out(std::uint64_t{topology.devices.size()});
  for (const Device& device : topology.devices) out(device.host, device.memory_bytes);
  out(topology.bandwidths.device_memory_bytes_per_s, topology.bandwidths.intra_host_bytes_per_s,
      topology.bandwidths.inter_host_bytes_per_s, request.global_batch_size, request.optimizer,
      request.memory.rule, request.memory.reserve_fraction, request.memory.reserve_bytes);
  Append(request.constraints, TableNames(request.tables), out);
  out(request.migration.has_value());
  if (request.migration) Append(*request.migration, out);
  Append(request.search, out);
  out(model_name, model_version);
  for (std::size_t i = 0; i < tables.size(); ++i) AppendLater(*tables[i], i, out);
  AppendLater(topology.fabric, out);
  AppendLater(tables, request, out);
  if (device_models.empty()) device_models = request.device_cost_models;
  AppendDeviceModels(request, device_models, {std::string(model_name), model_version}, out);
  out.IfGiven("cost_model.digest", model_digest);
  return Sha256Hex(out.bytes());
}

}  // namespace neuroshard
