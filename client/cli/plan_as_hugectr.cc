#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/plan_output.h"
#include "common/domain/kernel_limits.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {
namespace {

// A model-parallel table as HugeCTR's column_wise_sharding_factor says it: the ranks that hold it,
// ascending, in as many groups of equal length as there are column blocks; a group has one block,
// cut in rows.
struct Holders {
  std::vector<int> ranks;
  int column_factor = 1;
  std::string refusal;  // why it cannot be said so
};

Holders HoldersOf(const v1::TablePlan& table) {
  Holders holders;
  std::int64_t dim = 0;
  std::map<int, std::vector<std::pair<std::int64_t, std::int64_t>>> columns_of;  // offset, columns
  for (const v1::Shard& shard : table.shards()) {
    columns_of[shard.rank()].emplace_back(shard.col_offset(), shard.cols());
    dim = std::max(dim, shard.col_offset() + shard.cols());
  }
  std::vector<const std::vector<std::pair<std::int64_t, std::int64_t>>*> of_rank;
  std::int64_t width = -1;
  for (const auto& [rank, columns] : columns_of) {
    holders.ranks.push_back(rank);
    of_rank.push_back(&columns);
    std::int64_t of_this = 0;
    for (const auto& [offset, cols] : columns) of_this += cols;
    if (width >= 0 && of_this != width) {
      holders.refusal =
          fmt::format("has {} columns on rank {} and {} on rank {}, and HugeCTR cuts equal ones",
                      width, holders.ranks.front(), of_this, rank);
      return holders;
    }
    width = of_this;
  }
  if (width <= 0) {
    holders.refusal = "has no shards";
  } else if (width > kernel_limits::kHugeCtr.max_columns) {
    holders.refusal = fmt::format("has {} columns on a rank, and HugeCTR takes at most {}", width,
                                  kernel_limits::kHugeCtr.max_columns);
  } else if (dim % width != 0 ||
             holders.ranks.size() % static_cast<std::size_t>(dim / width) != 0) {
    holders.refusal = fmt::format(
        "has {} of {} columns on each of {} ranks, and HugeCTR has as many ranks for every block "
        "of columns",
        width, dim, holders.ranks.size());
  }
  if (!holders.refusal.empty()) return holders;
  holders.column_factor = static_cast<int>(dim / width);
  const std::size_t group = holders.ranks.size() / static_cast<std::size_t>(holders.column_factor);
  for (std::size_t i = 0; i < of_rank.size(); ++i) {
    if (*of_rank[i] == *of_rank[i / group * group]) continue;
    holders.refusal = fmt::format(
        "has different columns on ranks {} and {}, and HugeCTR gives consecutive ranks one block",
        holders.ranks[i / group * group], holders.ranks[i]);
    break;
  }
  return holders;
}

}  // namespace

StatusOr<std::string> PlanAsHugeCtr(const v1::Plan& plan,
                                    const google::protobuf::RepeatedPtrField<v1::Table>& request) {
  UnwritableTables refused("HugeCTR", request);
  std::vector<std::vector<std::string>> shard_matrix(static_cast<std::size_t>(plan.world_size()));
  auto model_parallel = nlohmann::ordered_json::array();
  auto data_parallel = nlohmann::ordered_json::array();
  auto tables = nlohmann::ordered_json::array();
  refused.WriteEach(plan, [&](int, const v1::TablePlan& table, const std::string& name) {
    tables.push_back(name);
    if (std::string reason = refused.WhyRefused(table); !reason.empty()) return reason;
    const std::int64_t width = table.shards_size() > 0 ? table.shards(0).cols() : 0;
    if (table.sharding_type() == ToText(ShardingType::kDataParallel) &&
        width <= kernel_limits::kHugeCtr.max_columns) {
      data_parallel.push_back(name);
      for (std::vector<std::string>& rank : shard_matrix) rank.push_back(name);
      return std::string();
    }
    const Holders holders = HoldersOf(table);
    if (!holders.refusal.empty()) return holders.refusal;
    for (const int rank : holders.ranks) {
      shard_matrix.at(static_cast<std::size_t>(rank)).push_back(name);
    }
    if (holders.column_factor == 1) {
      model_parallel.push_back(name);
    } else {
      model_parallel.push_back({name, holders.column_factor});
    }
    return std::string();
  });
  NS_RETURN_IF_ERROR(refused.ToStatus());
  auto strategy = nlohmann::ordered_json::array();
  if (!model_parallel.empty()) strategy.push_back({"mp", model_parallel});
  if (!data_parallel.empty()) strategy.push_back({"dp", data_parallel});
  for (std::size_t rank = 0; rank < shard_matrix.size(); ++rank) {
    if (!shard_matrix[rank].empty()) continue;
    return FailedPrecondition(
        "the plan cannot be written for HugeCTR: rank {} has no table, which HugeCTR does not take",
        rank);
  }
  const nlohmann::ordered_json document = {{"format", "neuroshard-hugectr/1"},
                                           {"num_gpus", plan.world_size()},
                                           {"tables", tables},
                                           {"shard_matrix", shard_matrix},
                                           {"shard_strategy", strategy}};
  return document.dump(2) + '\n';
}

}  // namespace neuroshard
