#include "client/cli/plan_from_torchrec.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cli/plan_output.h"
#include "common/base/number_text.h"
#include "common/base/printable_text.h"
#include "common/base/violations.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {
namespace {

using Json = nlohmann::ordered_json;

bool IsOnEveryRank(const v1::TablePlan& table) {
  const auto type = FromText<ShardingType>(table.sharding_type());
  return type == ShardingType::kDataParallel || type == ShardingType::kRowWise;
}

// "rank:3/cuda:1" or "rank:3/cpu".
std::optional<int> RankOf(std::string_view placement) {
  constexpr std::string_view kRank = "rank:";
  const std::size_t slash = placement.find('/');
  if (!placement.starts_with(kRank) || slash == std::string_view::npos) return std::nullopt;
  const auto rank = NumberOf<int>(placement.substr(kRank.size(), slash - kRank.size()));
  return rank && *rank >= 0 ? rank : std::nullopt;
}

// Reads values that have to be there; a fault is noted and leaves the default.
class Reader {
 public:
  explicit Reader(Violations& faults) : faults_(faults) {}

  const Json& Member(const Json& of, const char* key, const std::string& where) {
    static const Json& none = *new Json;
    if (of.is_object() && of.contains(key)) return of[key];
    faults_.Add(where, "has no {}", key);
    return none;
  }

  std::string Text(const Json& of, const char* key, const std::string& where) {
    const Json& value = Member(of, key, where);
    if (value.is_string()) return value.get<std::string>();
    if (!value.is_null()) faults_.Add(where + '.' + key, "must be a text");
    return "";
  }

  // Two numbers of 0 and more.
  std::pair<std::int64_t, std::int64_t> Two(const Json& of, const char* key,
                                            const std::string& where) {
    const Json& value = Member(of, key, where);
    const auto is_count = [](const Json& one) {
      return one.is_number_integer() && (one.is_number_unsigned() || one.get<std::int64_t>() >= 0);
    };
    if (value.is_array() && value.size() == 2 && is_count(value[0]) && is_count(value[1])) {
      return {value[0].get<std::int64_t>(), value[1].get<std::int64_t>()};
    }
    if (!value.is_null()) faults_.Add(where + '.' + key, "must be two integers of 0 and more");
    return {};
  }

  void Replicas(const Json& of, const std::string& where, v1::TablePlan& table) {
    const Json& ranks = Member(of, "ranks", where);
    for (std::size_t i = 0; ranks.is_array() && i < ranks.size(); ++i) {
      if (ranks[i].is_number_unsigned() && ranks[i] <= std::numeric_limits<int>::max()) {
        table.add_shards()->set_rank(ranks[i].get<int>());
      } else {
        faults_.Add(fmt::format("{}.ranks[{}]", where, i), "must be a rank");
      }
    }
    if (!ranks.is_null() && table.shards().empty()) faults_.Add(where + ".ranks", "names no rank");
  }

  void Shards(const Json& of, const std::string& where, v1::TablePlan& table) {
    const Json& shards = Member(of, "shards", where);
    if (!shards.is_array()) {
      if (of.contains("shards")) faults_.Add(where + ".shards", "must be a list");
      return;
    }
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const std::string place = fmt::format("{}.shards[{}]", where, i);
      v1::Shard& shard = *table.add_shards();
      const auto [row, col] = Two(shards[i], "shard_offsets", place);
      const auto [rows, cols] = Two(shards[i], "shard_sizes", place);
      const std::string placement = Text(shards[i], "placement", place);
      const std::optional<int> rank = RankOf(placement);
      if (!placement.empty() && !rank.has_value()) {
        faults_.Add(place + ".placement", "must be like \"rank:0/cuda:0\", got {}",
                    Quoted(placement));
      }
      shard.set_row_offset(row);
      shard.set_col_offset(col);
      shard.set_rows(rows);
      shard.set_cols(cols);
      shard.set_rank(rank.value_or(0));
    }
  }

  void Table(const Json& of, const std::string& where, v1::TablePlan& table) {
    if (!of.is_object()) {
      faults_.Add(where, "must be an object");
      return;
    }
    table.set_sharding_type(Text(of, "sharding_type", where));
    table.set_compute_kernel(Text(of, "compute_kernel", where));
    if (const auto factor = of.find("cache_load_factor");
        factor != of.end() && !factor->is_null()) {
      if (factor->is_number()) {
        table.set_cache_load_factor(factor->get<double>());
      } else {
        faults_.Add(where + ".cache_load_factor", "must be a number");
      }
    }
    if (FromText<ShardingType>(table.sharding_type()) == ShardingType::kDataParallel) {
      Replicas(of, where, table);
    } else {
      Shards(of, where, table);
    }
  }

 private:
  Violations& faults_;
};

// What the entry's module and name stand for: theirs, else the only table of that name; else -1.
int PositionOf(const v1::TablePlan& wanted, const TableNames& names) {
  const int same = names.Find(FullName(wanted.module(), wanted.name()));
  if (same >= 0) return same;
  const std::vector<int>& named = names.WithName(wanted.name());
  return named.size() == 1 ? named.front() : -1;
}

// Where the table is data_parallel and its shards lack a size.
void Complete(std::int64_t rows, std::int64_t cols, v1::TablePlan& table) {
  if (FromText<ShardingType>(table.sharding_type()) != ShardingType::kDataParallel) return;
  for (v1::Shard& shard : *table.mutable_shards()) {
    if (shard.rows() > 0) continue;
    shard.set_rows(rows);
    shard.set_cols(cols);
  }
}

}  // namespace

bool IsTorchRecPlan(const Json& document) {
  if (!document.is_object()) return false;
  const auto plan = document.find("plan");
  if (plan == document.end() || !plan->is_object() || plan->contains("world_size")) return false;
  const auto tables = plan->find("tables");  // of ours; a module may have that name
  return tables == plan->end() || !tables->is_array();
}

StatusOr<v1::Plan> PlanFromTorchRec(const Json& document) {
  Violations faults;
  Reader reader(faults);
  v1::Plan plan;
  int world_size = 1;
  for (const auto& [module, tables] : document["plan"].items()) {
    const std::string where = fmt::format("plan[{}]", Quoted(module));
    if (!tables.is_object()) {
      faults.Add(where, "must be an object of tables");
      continue;
    }
    for (const auto& [name, of] : tables.items()) {
      v1::TablePlan& table = *plan.add_tables();
      table.set_module(module);
      table.set_name(name);
      reader.Table(of, fmt::format("{}[{}]", where, Quoted(name)), table);
      if (IsOnEveryRank(table)) world_size = std::max(world_size, table.shards_size());
      for (const v1::Shard& shard : table.shards()) {
        world_size = std::max(world_size, shard.rank() + 1);
      }
    }
  }
  NS_RETURN_IF_ERROR(faults.ToStatus());
  plan.set_world_size(world_size);
  return plan;
}

void CompleteFromRequest(const v1::ShardPlanRequest& request, v1::Plan& plan) {
  const TableNames names = NamesOf(request);
  for (v1::TablePlan& table : *plan.mutable_tables()) {
    const int position = PositionOf(table, names);
    if (position < 0) continue;
    const v1::Table& found = request.tables(position);
    table.set_module(found.module());
    table.set_name(found.name());
    Complete(found.num_embeddings(), found.embedding_dim(), table);
  }
  std::int64_t ranks = 0;
  bool alike = true;
  for (const v1::HostGroup& group : request.topology().hosts()) {
    ranks += std::int64_t{group.has_count() ? group.count() : 1} * group.num_devices();
    alike = alike && group.num_devices() == request.topology().hosts(0).num_devices();
  }
  const bool may_grow = std::ranges::none_of(plan.tables(), IsOnEveryRank) &&
                        ranks > plan.world_size() && ranks <= std::numeric_limits<int>::max();
  if (may_grow) plan.set_world_size(static_cast<int>(ranks));
  if (ranks > 0 && alike && ranks == plan.world_size()) {
    plan.set_local_world_size(request.topology().hosts(0).num_devices());
  }
}

void CompleteReplicas(const v1::Plan& other, v1::Plan& plan) {
  const TableNames names = NamesOf(other);
  for (v1::TablePlan& table : *plan.mutable_tables()) {
    const int position = PositionOf(table, names);
    if (position < 0) continue;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    for (const v1::Shard& shard : other.tables(position).shards()) {
      rows = std::max(rows, shard.row_offset() + shard.rows());
      cols = std::max(cols, shard.col_offset() + shard.cols());
    }
    Complete(rows, cols, table);
  }
}

}  // namespace neuroshard
