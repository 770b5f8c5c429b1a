#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/plan_output.h"
#include "common/domain/shard_layout.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {
namespace {

// The columns of a table on each rank that holds some.
std::map<int, std::int64_t> ColumnsByRank(const v1::TablePlan& table) {
  std::map<int, std::int64_t> columns;
  for (const v1::Shard& shard : table.shards()) columns[shard.rank()] += shard.cols();
  return columns;
}

bool AllColumnsOnAllRanks(const v1::TablePlan& table, int world_size) {
  const std::map<int, std::int64_t> columns = ColumnsByRank(table);
  for (const v1::Shard& shard : table.shards()) {
    if (shard.col_offset() != 0 || columns.at(shard.rank()) != shard.cols()) return false;
  }
  return columns.size() == static_cast<std::size_t>(world_size);
}

}  // namespace

StatusOr<std::string> PlanAsDistributedEmbeddings(
    const v1::Plan& plan, const google::protobuf::RepeatedPtrField<v1::Table>& tables) {
  UnwritableTables refused("distributed-embeddings", tables);
  const std::size_t world_size = static_cast<std::size_t>(plan.world_size());
  auto listed = nlohmann::ordered_json::array();
  auto data_parallel = nlohmann::ordered_json::array();
  auto row_slice = nlohmann::ordered_json::array();
  std::vector<std::vector<int>> table_ids(world_size);
  std::vector<std::vector<std::int64_t>> columns(world_size);
  bool table_parallel = false;
  refused.WriteEach(plan, [&](int id, const v1::TablePlan& entry, const std::string& name) {
    listed.push_back(name);
    if (std::string reason = refused.WhyRefused(entry); !reason.empty()) return reason;
    const std::optional<ShardingType> type = FromText<ShardingType>(entry.sharding_type());
    // One rank has neither of its other groups.
    const bool in_groups = world_size > 1;
    if (in_groups && type == ShardingType::kDataParallel) {
      data_parallel.push_back(id);
    } else if (in_groups && type && CutsRows(*type)) {
      if (!AllColumnsOnAllRanks(entry, plan.world_size())) {
        return fmt::format(
            "is {}, and distributed-embeddings cuts rows over all ranks or not at "
            "all, and never columns besides",
            entry.sharding_type());
      }
      row_slice.push_back(id);
    } else {
      table_parallel = true;
      for (const auto& [rank, cols] : ColumnsByRank(entry)) {
        table_ids.at(static_cast<std::size_t>(rank)).push_back(id);
        columns.at(static_cast<std::size_t>(rank)).push_back(cols);
      }
    }
    return std::string();
  });
  NS_RETURN_IF_ERROR(refused.ToStatus());
  for (std::size_t rank = 0; rank < world_size && table_parallel; ++rank) {
    if (!table_ids[rank].empty()) continue;
    return FailedPrecondition(
        "the plan cannot be written for distributed-embeddings: rank {} has no table or slice of "
        "its own, and distributed-embeddings wants one on every rank",
        rank);
  }
  const nlohmann::ordered_json document = {{"format", "neuroshard-distributed-embeddings/1"},
                                           {"world_size", plan.world_size()},
                                           {"tables", listed},
                                           {"data_parallel", data_parallel},
                                           {"row_slice", row_slice},
                                           {"table_ids", table_ids},
                                           {"columns", columns}};
  return document.dump(2) + '\n';
}

}  // namespace neuroshard
