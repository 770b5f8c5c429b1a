// A plan in the forms that its users read, and the tables that another trainer's form has no words
// for.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/text_table.h"
#include "common/base/status.h"
#include "common/domain/table_names.h"
#include "common/domain/topology.h"
#include "common/domain/vocabulary.h"
#include "neuroshard/v1/plan.pb.h"
#include "neuroshard/v1/planner.pb.h"
#include "neuroshard/v1/table.pb.h"

namespace neuroshard {

// A plan for a person to read: the cost of every rank, a summary, types and shards, the bound, what
// moves, why, and the warnings; as much of it as the response has.
std::string PlanAsTable(const v1::ShardPlanResponse& response, const TextStyle& style = {});

// TorchRec's ShardingPlan as its _serialize() writes it (torchrec 1.4, distributed/types.py):
//   {"plan": {module: {table: {sharding_type, compute_kernel, ranks,
//                              shards: [{shard_offsets: [row, col], shard_sizes: [rows, cols],
//                              placement: "rank:R/cuda:D"}]}}}}
// and "cache_load_factor" besides, which TorchRec's form lacks, where the plan has one.
// D is the rank's position on its host, from the request's topology. `device_type` is "cuda" or
// "cpu" ("rank:R/cpu"). Row blocks without rows stay in the list; "shards" of data_parallel is
// null, as ParameterSharding.sharding_spec is there. FAILED_PRECONDITION for row_wise_subset and
// the kernel "offload", which TorchRec does not have, and for types that it does not run for
// unpooled tables.
StatusOr<std::string> PlanAsTorchRec(const v1::Plan& plan, const v1::Topology& topology,
                                     const std::string& device_type);

// What TorchRec 1.9.2 computes wrongly of the plan. A sentence a module: where rows of a
// mean-pooled table are cut beside a table whose rows are not, it divides the values of both
// (embeddingbag.py divides after the exchange, by module). A sentence a table whose row_wise blocks
// are not CeilBlocks: it trains in those, unless the table's config has buckets (rw_sharding.py) or
// its sharder sees to it. On CPUs, a sentence on kernels that its sharders offer on CUDA alone.
// `tables` are the request's.
std::vector<std::string> TorchRecWarnings(
    const v1::Plan& plan, const google::protobuf::RepeatedPtrField<v1::Table>& tables,
    std::string_view device_type);

// NeuroShard's plan, a sequence of column splits and a device for every resulting table:
//   {"format": "neuroshard-plan/1", "num_devices": D, "tables": [names in request order],
//    "column_splits": [index, ...], "assignment": [device, ...]}
// A split halves the dim of the table at `index` and appends the other half as a new table;
// assignment[i] is the device of table i after all splits. FAILED_PRECONDITION when a table's
// shards are not made by halving its columns (the format cannot say anything else).
StatusOr<std::string> PlanAsNeuroShard(const v1::Plan& plan);

// The arguments of EmbeddingCollectionConfig.shard of HugeCTR:
//   {"format": "neuroshard-hugectr/1", "num_gpus": G, "tables": [names in request order],
//    "shard_matrix": [[name, ...] a GPU], "shard_strategy": [["mp", [name | [name, F], ...]],
//                                                            ["dp", [name, ...]]]}
// A table of "mp" with k GPUs in shard_matrix has F blocks of columns of equal width (one where no
// F stands), each on k / F GPUs that follow each other, on which its rows are by key modulo k / F.
// So ranks have as many rows and columns as in the plan (rows: one more or less), though maybe
// others. FAILED_PRECONDITION with all tables that cannot be said so: other columns a rank than
// another's, more than 256 of them, column blocks that do not follow the ranks; unpooled ones, ids
// with weights, weights other than fp32 (`request`: its tables); and a rank without any table.
StatusOr<std::string> PlanAsHugeCtr(const v1::Plan& plan,
                                    const google::protobuf::RepeatedPtrField<v1::Table>& request);

// The groups of DistEmbeddingStrategy of NVIDIA Merlin distributed-embeddings 1.0:
//   {"format": "neuroshard-distributed-embeddings/1", "world_size": W,
//    "tables": [names in request order; a table's id is its position],
//    "data_parallel": [id, ...], "row_slice": [id, ...],
//    "table_ids": [[id, ...] a rank], "columns": [[columns, ...] a rank, as table_ids]}
// A table is in one of the three groups. Its slices take its columns from 0 on in the order of
// ranks; row_slice cuts rows evenly over all ranks. So ranks have as many rows and columns as in
// the plan (rows: those of row_wise are cut otherwise), though maybe others. FAILED_PRECONDITION
// with all tables that cannot be said so: rows on some ranks only, rows and columns cut; unpooled
// ones, ids with weights, weights other than fp32 (`tables` are the request's); and, where
// table_ids names any, a rank without one.
StatusOr<std::string> PlanAsDistributedEmbeddings(
    const v1::Plan& plan, const google::protobuf::RepeatedPtrField<v1::Table>& tables);

// Returns the names of the tables of a plan or a request.
template <typename Message>
TableNames NamesOf(const Message& message) {
  TableNames names;
  for (const auto& table : message.tables()) names.Add(table.module(), table.name());
  return names;
}

// Why a form that knows device memory alone cannot have the table. Empty: its rows are there.
inline std::string WhyNotInDeviceMemory(const v1::TablePlan& table) {
  const auto kernel = FromText<ComputeKernel>(table.compute_kernel());
  if (!kernel || TierOf(*kernel) == MemoryTier::kDevice) return "";
  return fmt::format("is {}: its rows are {}", table.compute_kernel(),
                     SharedMemoryOf(TierOf(*kernel)).place);
}

// Collects them; not for concurrent use. `trainer` pools rows of fp32 in device memory and has no
// weights of ids.
class UnwritableTables {
 public:
  explicit UnwritableTables(std::string_view trainer,
                            const google::protobuf::RepeatedPtrField<v1::Table>& tables = {})
      : trainer_(trainer) {
    for (const v1::Table& table : tables) tables_[FullName(table.module(), table.name())] = &table;
  }

  // What the trainer cannot run of a table, whatever its place. Empty: nothing.
  std::string WhyRefused(const v1::TablePlan& entry) const {
    if (entry.kind() == ToText(TableKind::kEmbedding)) {
      return fmt::format("is unpooled, and {} gives one vector a sample", trainer_);
    }
    if (std::string reason = WhyNotInDeviceMemory(entry); !reason.empty()) return reason;
    const auto table = tables_.find(FullName(entry.module(), entry.name()));
    if (table == tables_.end()) return "";
    if (table->second->weighted())
      return fmt::format("has weighted ids, which {} does not", trainer_);
    const std::string& dtype = table->second->weight_dtype();
    if (dtype.empty() || dtype == ToText(DataType::kFp32)) return "";
    return fmt::format("has weights of {}, and those of {} are fp32", dtype, trainer_);
  }

  // `reason` continues "table NAME". Empty: the table can be written.
  void Add(std::string_view table, std::string_view reason) {
    if (reason.empty() || ++count_ > kNamed) return;
    list_ += fmt::format("{}table {} {}", count_ == 1 ? "" : "; ", table, reason);
  }

  // Adds what write(position, table, name) says of each table of the plan.
  template <typename Write>
  void WriteEach(const v1::Plan& plan, const Write& write) {
    const TableNames names = NamesOf(plan);
    for (int t = 0; t < plan.tables_size(); ++t) {
      const std::string& name = names.ReferenceTo(t);
      Add(name, write(t, plan.tables(t), name));
    }
  }

  // FAILED_PRECONDITION that names the first few and counts all; OK where there are none.
  Status ToStatus() const {
    if (count_ == 0) return absl::OkStatus();
    return FailedPrecondition("the plan cannot be written for {}: {}{}", trainer_, list_,
                              count_ > kNamed ? fmt::format("; and {} more", count_ - kNamed) : "");
  }

 private:
  static constexpr std::size_t kNamed = 3;

  const std::string trainer_;
  std::map<std::string, const v1::Table*> tables_;
  std::size_t count_ = 0;
  std::string list_;
};

}  // namespace neuroshard
