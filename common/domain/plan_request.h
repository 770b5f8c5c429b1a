// Plan request after decoding: every value is in range and every name is known; nothing behind the
// codec checks again.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/domain/constraints.h"
#include "common/domain/kernel_limits.h"
#include "common/domain/table.h"
#include "common/domain/topology.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// The memory that shards count for, and the reserve of each device.
struct MemoryModel {
  MemoryRule rule = MemoryRule::kFull;
  double reserve_fraction = 0.0;
  std::int64_t reserve_bytes = 0;
  // Bytes of a device that dense layers take beside it while they run; 0: not stated. Tables are
  // stashed for it (Table::stash_weights), more than those that ask for it where it takes more.
  std::int64_t dense_bytes = 0;
  // Whether stashed weights take nothing of devices, as if dense layers ran all the time. No request
  // asks for it: searches do, for plans that stash as little as they need (server/search/goals).
  bool only_dense = false;

  bool operator==(const MemoryModel&) const = default;
};

// The cost model that a request asks for.
struct CostModelRef {
  std::string name;  // empty: the server's default
  int version = 0;   // 0: the newest
  // SHA-256 of its files, in hex; in a request what it has to be. Empty: any, or there are none.
  std::string digest = {};

  bool operator==(const CostModelRef&) const = default;
};

// The cost model of the compute of the ranks whose Device::name this is.
struct DeviceCostModel {
  std::string device;
  CostModelRef model;  // with a name

  bool operator==(const DeviceCostModel&) const = default;
};

// Types of vectors and of their gradients on the wire; none: as the lookup gives them.
struct QuantizedComms {
  std::optional<DataType> forward_dtype;
  std::optional<DataType> backward_dtype;

  bool operator==(const QuantizedComms&) const = default;
};

// distributed-embeddings' thresholds, in elements (rows x columns); none: off, for columns the
// automatic rule in the documentation of its DistEmbeddingStrategy.
struct DistributedEmbeddingsOptions {
  std::optional<std::int64_t> column_slice_threshold_elements;
  std::optional<std::int64_t> row_slice_threshold_elements;
  std::optional<std::int64_t> data_parallel_threshold_elements;
  std::optional<std::int64_t> gpu_embedding_size_elements;  // a rank; none: no table is offloaded

  bool operator==(const DistributedEmbeddingsOptions&) const = default;
};

// HugeCTR's DLRM planner (samples/dlrm/sharding/planner.py).
struct HugeCtrOptions {
  double bandwidth_ratio = 3.35e12 / 450e9;  // memory bandwidth / communication bandwidth
  double work_ratio = 4;
  double data_parallel_threshold_gb = 0;  // tables below are replicated; GB is 10^9 bytes
  int iterations = 20;
  bool hierarchical = false;  // hier_auto: buckets are hosts

  bool operator==(const HugeCtrOptions&) const = default;
};

// What a search makes small: the costliest rank in the mean batch (PlanCost::embedding_cost_ms), or
// the mean over sampled batches of the costliest rank in each (PlanCost::mean_of_max_ms).
enum class PlanObjective { kMaxOfMeans, kMeanOfMax };

NS_WORDS(PlanObjective, {kMaxOfMeans, "max_of_means"}, {kMeanOfMax, "mean_of_max"});
// How much work `refine` does (SearchContext): a first amount, more as long as it pays, or much.
enum class SearchEffort { kDefault, kQuick, kThorough };
NS_WORDS(SearchEffort, {kDefault, "default"}, {kQuick, "quick"}, {kThorough, "thorough"});

// What of a plan can be made small (PlanGoal in search.proto says what each counts).
enum class PlanMeasure { kCost, kMaxMemory, kMovedBytes, kCutTables, kExchanges, kMaxStash };
NS_WORDS(PlanMeasure, {kCost, "cost"}, {kMaxMemory, "max_memory"}, {kMovedBytes, "moved_bytes"},
         {kCutTables, "cut_tables"}, {kExchanges, "exchanges"}, {kMaxStash, "max_stash"});

struct PlanGoal {
  PlanMeasure measure = PlanMeasure::kCost;
  double tolerance = 0;  // share by which it may get worse for the goals after it

  bool operator==(const PlanGoal&) const = default;
};

// NeuroShard's names in brackets.
struct SearchOptions {
  std::string strategy = "refine";
  int beam_width = 3;       // [k]
  int num_candidates = 10;  // [n]
  int max_length = 10;
  int search_steps = 11;
  std::optional<std::chrono::milliseconds> time_budget;
  std::optional<std::uint64_t> seed;  // none: 0
  int max_threads = 1;                // cores that one search may use
  // Steps of local search after which `refine` ends; none: by `effort`.
  std::optional<std::int64_t> refine_steps;
  bool explain = false;  // why each table got its type
  DistributedEmbeddingsOptions distributed_embeddings;
  HugeCtrOptions hugectr;
  PlanObjective objective = PlanObjective::kMaxOfMeans;
  SearchEffort effort = SearchEffort::kDefault;  // without time_budget and refine_steps
  std::vector<PlanGoal> goals = {};              // the first is the cost; empty: that alone

  bool operator==(const SearchOptions&) const = default;
};

// A valid request. Tables have different full names (table_names.h); tables in constraints and
// migration are indices.
struct PlanRequest {
  std::string request_id;
  std::vector<Table> tables;
  Topology topology;
  std::int64_t global_batch_size = 65536;
  Optimizer optimizer = Optimizer::kSgd;
  std::optional<PipelineType> pipeline_type = {};  // none: not stated
  QuantizedComms quantized_comms = {};
  MemoryModel memory;
  Constraints constraints;
  std::optional<Migration> migration;
  CostModelRef cost_model;
  // Each device once, of some rank; other ranks, and communication, have `cost_model`.
  std::vector<DeviceCostModel> device_cost_models = {};
  SearchOptions search;
  std::vector<std::string> warnings;  // what decoding had to assume

  // Whether any table's vectors are not pooled: such a table takes few sharding types (IsTypeOf).
  bool has_unpooled_tables() const {
    return std::ranges::any_of(
        tables, [](const Table& table) { return table.kind == TableKind::kEmbedding; });
  }
  // Whether weights leave devices while dense layers run, of tables that ask for it or are chosen.
  bool stashes() const {
    return memory.dense_bytes > 0 || std::ranges::any_of(tables, &Table::stash_weights);
  }
  // None of any table where the request is served.
  Optimizer optimizer_of(const Table& table) const {
    return optimizer == Optimizer::kNone ? optimizer : table.optimizer.value_or(optimizer);
  }
  // What the trainer's kernels take; any, where the request says nothing of the trainer.
  const KernelLimits& kernels() const {
    return IsOfAnotherTrainer(search.strategy) ? kernel_limits::kAny
                                               : FbgemmOn(topology.compute_device);
  }
  // Tables that have to be cut in columns for them, ascending.
  std::vector<int> too_wide_tables() const {
    const std::int64_t most = kernels().max_columns;
    std::vector<int> wide;
    for (std::size_t t = 0; t < tables.size(); ++t) {
      if (tables[t].embedding_dim > most) wide.push_back(static_cast<int>(t));
    }
    return wide;
  }
  // Whether tables may be in a memory that hosts share: some have it, and where its kernels are only
  // where listed, a rule lists one or a plan in place has it.
  bool may_use(MemoryTier tier) const {
    if ((topology.*SharedMemoryOf(tier).of_hosts).empty()) return false;
    if (!IsOnlyWhereListed(tier)) return true;
    const auto listed = [tier](const TableRule& rule) { return rule.lists_any_in(tier); };
    const auto in_place = [tier](const TablePlan& t) { return TierOf(t.compute_kernel) == tier; };
    return std::ranges::any_of(constraints.tables, listed) ||
           (migration.has_value() && std::ranges::any_of(migration->previous.tables, in_place));
  }
  // Whether copies of stashed tables take memory of hosts, which other tables may be short of.
  bool has_copies_in_host_memory() const {
    return !topology.host_memory_bytes.empty() &&
           std::ranges::any_of(tables, &Table::stash_weights);
  }
  // Whether any placement that fits into device memory is legal, in the types that a cost model was
  // made for.
  bool demands_nothing() const {
    return constraints.empty() && !migration.has_value() && !has_unpooled_tables() &&
           too_wide_tables().empty() && !has_copies_in_host_memory();
  }

  bool operator==(const PlanRequest&) const = default;
};

}  // namespace neuroshard
