#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/plan_output.h"
#include "common/domain/shard_layout.h"

namespace neuroshard {
namespace {

// A table while the splits are replayed: the shards it still has to become.
struct Part {
  std::size_t index = 0;  // in NeuroShard's growing list of tables
  std::string table;
  std::vector<v1::Shard> shards;  // widest first
};

std::int64_t Columns(const std::vector<v1::Shard>& shards) {
  std::int64_t columns = 0;
  for (const v1::Shard& shard : shards) columns += shard.cols();
  return columns;
}

// Takes shards off `part`, widest first, until they are half of it. Widths made by halving are the
// dim over powers of two, of which the widest always fill a half exactly. Empty when they do not.
std::vector<v1::Shard> TakeHalf(Part& part) {
  const std::int64_t columns = Columns(part.shards);
  std::vector<v1::Shard> half;
  std::vector<v1::Shard> rest;
  std::int64_t missing = columns % 2 == 0 ? columns / 2 : -1;
  for (const v1::Shard& shard : part.shards) {
    if (shard.cols() <= missing) {
      missing -= shard.cols();
      half.push_back(shard);
    } else {
      rest.push_back(shard);
    }
  }
  if (missing != 0) return {};
  part.shards = std::move(half);
  return rest;
}

}  // namespace

StatusOr<std::string> PlanAsNeuroShard(const v1::Plan& plan) {
  auto listed = nlohmann::ordered_json::array();
  auto splits = nlohmann::ordered_json::array();
  UnwritableTables unwritable("NeuroShard");
  std::set<std::string> not_halves;
  std::deque<Part> open;
  unwritable.WriteEach(plan, [&](int, const v1::TablePlan& table, const std::string& name) {
    const std::optional<ShardingType> type = FromText<ShardingType>(table.sharding_type());
    if (!type || CutsRows(*type) || *type == ShardingType::kDataParallel) {
      return fmt::format("is {}, and NeuroShard knows whole tables and halves of their columns",
                         table.sharding_type());
    }
    if (table.shards().empty()) return std::string("has no shards");
    if (std::string reason = WhyNotInDeviceMemory(table); !reason.empty()) return reason;
    listed.push_back(name);
    Part part{open.size(), name, {table.shards().begin(), table.shards().end()}};
    std::ranges::stable_sort(part.shards, std::greater{}, &v1::Shard::cols);
    open.push_back(std::move(part));
    return std::string();
  });
  std::vector<int> assignment(open.size(), 0);
  for (; !open.empty(); open.pop_front()) {
    Part& part = open.front();
    while (part.shards.size() > 1) {
      std::vector<v1::Shard> other = TakeHalf(part);
      if (other.empty()) {
        if (not_halves.insert(part.table).second) {
          unwritable.Add(part.table, "has shards that are not made by halving");
        }
        break;
      }
      splits.push_back(part.index);
      open.push_back({assignment.size(), part.table, std::move(other)});
      assignment.push_back(0);
    }
    assignment[part.index] = part.shards.front().rank();
  }
  NS_RETURN_IF_ERROR(unwritable.ToStatus());
  const nlohmann::ordered_json document = {{"format", "neuroshard-plan/1"},
                                           {"num_devices", plan.world_size()},
                                           {"tables", listed},
                                           {"column_splits", splits},
                                           {"assignment", assignment}};
  return document.dump(2) + '\n';
}

}  // namespace neuroshard
