#include "client/cli/plan_moves.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/base/bytes.h"
#include "common/domain/held_shards.h"
#include "common/domain/table_names.h"

namespace neuroshard {
namespace {

using MovesJson = nlohmann::ordered_json;

bool IsLiveType(ShardingType type) {
  return type == ShardingType::kTableWise || type == ShardingType::kColumnWise;
}

bool RepeatsARank(const TablePlan& plan) {
  std::set<int> ranks;
  return std::any_of(plan.shards.begin(), plan.shards.end(),
                     [&](const Shard& shard) { return !ranks.insert(shard.rank).second; });
}

bool CutsAlike(const TablePlan& a, const TablePlan& b) {
  return std::equal(a.shards.begin(), a.shards.end(), b.shards.begin(), b.shards.end(),
                    [](const Shard& x, const Shard& y) { return x.cols == y.cols; });
}

bool HasUnevenColumns(const TablePlan& plan) {
  return std::any_of(plan.shards.begin(), plan.shards.end(),
                     [&](const Shard& shard) { return shard.cols != plan.shards.front().cols; });
}

bool PartStaysOnItsRank(const TablePlan& before, const TablePlan& after) {
  return std::any_of(after.shards.begin(), after.shards.end(), [&](const Shard& made) {
    return std::any_of(before.shards.begin(), before.shards.end(), [&](const Shard& held) {
      return held.rank == made.rank && Overlap(made, held).has_value();
    });
  });
}

// By torchrec/distributed/sharding/dynamic_sharding.py, and by what it did when it was tried
// (client/python/neuroshard/torchrec/training_test.py): update_module_sharding_plan does not detect
// a change of type, _prepare_shard_distribution_comm_ops fills the first local shard only and sends
// to its own rank too, row-wise state is not merged ("need a way to merge the optimizer"). Only
// EmbeddingBagCollectionSharder has reshard.
std::string TorchRecFault(const PlanRequest& request, const Table& table, const TablePlan& before,
                          const TablePlan& after) {
  const int ranks = request.topology.num_ranks();
  if (table.kind == TableKind::kEmbedding) return "unpooled tables are not moved";
  for (const TablePlan* plan : {&before, &after}) {
    if (!IsLiveType(plan->sharding_type)) {
      return fmt::format("{} is not moved, table_wise and column_wise are",
                         ToText(plan->sharding_type));
    }
    if (plan->compute_kernel != ComputeKernel::kFused) {
      return fmt::format("kernel {} is not moved, fused is", ToText(plan->compute_kernel));
    }
    if (HasUnevenColumns(*plan)) return "column blocks of different widths are not moved";
  }
  if (before.sharding_type != after.sharding_type) {
    return fmt::format("{} does not become {}", ToText(before.sharding_type),
                       ToText(after.sharding_type));
  }
  if (RepeatsARank(after)) return "a second shard of a table on a rank is not filled";
  for (const Shard& shard : before.shards) {
    if (shard.rank >= ranks) return fmt::format("rank {} is gone", shard.rank);
  }
  if (request.optimizer == Optimizer::kRowwiseAdagrad && !CutsAlike(before, after)) {
    return "row-wise Adagrad's state is lost where column blocks change";
  }
  if (request.topology.compute_device == ComputeDevice::kCpu && PartStaysOnItsRank(before, after)) {
    return "a part stays on its rank, and gloo does not send to the same rank";
  }
  return "";
}

const TablePlan* Find(const Plan& plan, const std::vector<int>& table_of, int table) {
  const auto found = std::find(table_of.begin(), table_of.end(), table);
  return found == table_of.end() ? nullptr
                                 : &plan.tables[static_cast<std::size_t>(found - table_of.begin())];
}

class MovesWriter {
 public:
  explicit MovesWriter(const PlanRequest& request) : names_(request.tables) {}

  const std::string& NameOf(int table) const { return names_.ReferenceTo(table); }

  MovesJson ShardJson(const TableShard& held) const {
    MovesJson json = {{"table", NameOf(held.table)}, {"rank", held.shard.rank}};
    AddRectangle(held.shard, json);
    return json;
  }

  MovesJson ShardsJson(const std::vector<TableShard>& shards) const {
    MovesJson json = MovesJson::array();
    for (const TableShard& shard : shards) json.push_back(ShardJson(shard));
    return json;
  }

  MovesJson StepJson(const ReshardingStep& step) const {
    MovesJson made = MovesJson::array();
    for (const MadeShard& shard : step.made) {
      MovesJson parts = MovesJson::array();
      for (const MovedPart& part : shard.parts) {
        MovesJson json = {{"from_rank", part.from_rank}, {"link", ToText(part.link)}};
        AddRectangle(part.part, json);
        json["weights_bytes"] = part.weights_bytes;
        json["optimizer_bytes"] = part.optimizer_bytes;
        parts.push_back(std::move(json));
      }
      MovesJson json = ShardJson(shard.made);
      json["parts"] = std::move(parts);
      made.push_back(std::move(json));
    }
    return {{"to_buffer", ShardsJson(step.to_buffer)},
            {"make", std::move(made)},
            {"free", ShardsJson(step.freed)}};
  }

  std::string CycleText(const std::vector<Waiting>& cycle) const {
    std::vector<std::string> parts;
    for (const Waiting& waiting : cycle) {
      parts.push_back(
          fmt::format("rank {} has no room for its part of {} until its part of {} is "
                      "on rank {}",
                      waiting.rank, NameOf(waiting.wants.table), NameOf(waiting.holds.table),
                      waiting.next_rank));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  }

 private:
  static void AddRectangle(const Shard& shard, MovesJson& json) {
    json["row_offset"] = shard.row_offset;
    json["rows"] = shard.rows;
    json["col_offset"] = shard.col_offset;
    json["cols"] = shard.cols;
  }

  TableNames names_;
};

}  // namespace

StatusOr<PlanMoves> MovesOf(const PlanRequest& request, const Plan& plan) {
  PlanMoves moves;
  NS_ASSIGN_OR_RETURN(moves.resharding, Reshard(request, plan));
  std::set<int> moved;
  for (const ReshardingStep& step : moves.resharding.steps) {
    for (const MadeShard& made : step.made) moved.insert(made.made.table);
  }
  const Plan& previous = request.migration->previous;
  const std::vector<int> before = TablesOf(previous, request.tables);
  const std::vector<int> after = TablesOf(plan, request.tables);
  for (const int table : moved) {
    moves.tables.push_back(
        {table, TorchRecFault(request, request.tables[static_cast<std::size_t>(table)],
                              *Find(previous, before, table), *Find(plan, after, table))});
  }
  return moves;
}

std::string MovesAsJson(const PlanRequest& request, const PlanMoves& moves) {
  const MovesWriter writer(request);
  const Resharding& resharding = moves.resharding;
  MovesJson cycle = MovesJson::array();
  for (const Waiting& waiting : resharding.cycle) {
    cycle.push_back({{"rank", waiting.rank},
                     {"wants", writer.ShardJson(waiting.wants)},
                     {"holds", writer.ShardJson(waiting.holds)},
                     {"next_rank", waiting.next_rank}});
  }
  MovesJson bytes = MovesJson::object();
  for (const auto& word : kWords<PartLink>) {
    if (word.value == PartLink::kSameRank) continue;
    bytes[std::string(word.text)] = resharding.bytes_by_link[static_cast<std::size_t>(word.value)];
  }
  MovesJson ranks = MovesJson::array();
  for (std::size_t rank = 0; rank < resharding.peak_bytes.size(); ++rank) {
    ranks.push_back({{"rank", rank},
                     {"peak_bytes", resharding.peak_bytes[rank]},
                     {"capacity_bytes", resharding.capacity_bytes[rank]}});
  }
  MovesJson tables = MovesJson::array();
  for (const TableMove& table : moves.tables) {
    const Table& of = request.tables[static_cast<std::size_t>(table.table)];
    tables.push_back({{"table", writer.NameOf(table.table)},
                      {"module", of.module},
                      {"name", of.name},
                      {"torchrec_live", table.torchrec_fault.empty()},
                      {"reason", table.torchrec_fault}});
  }
  MovesJson steps = MovesJson::array();
  for (const ReshardingStep& step : resharding.steps) steps.push_back(writer.StepJson(step));
  const MovesJson document = {{"format", "neuroshard-moves/1"},
                              {"order", ToText(resharding.order)},
                              {"buffer_bytes", resharding.buffer_bytes},
                              {"cycle", std::move(cycle)},
                              {"bytes", std::move(bytes)},
                              {"ranks", std::move(ranks)},
                              {"tables", std::move(tables)},
                              {"freed_first", writer.ShardsJson(resharding.freed_first)},
                              {"steps", std::move(steps)}};
  return document.dump(2, ' ', false, MovesJson::error_handler_t::replace) + '\n';
}

std::string MovesAsText(const PlanRequest& request, const PlanMoves& moves) {
  const Resharding& resharding = moves.resharding;
  if (moves.tables.empty()) return "moves: nothing\n";
  std::vector<std::string> links;
  for (const auto& word : kWords<PartLink>) {
    const std::int64_t bytes = resharding.bytes_by_link[static_cast<std::size_t>(word.value)];
    if (bytes > 0) links.push_back(fmt::format("{} {}", word.text, FormatBytes(bytes)));
  }
  std::string text = fmt::format(
      "moves: {} in {} table{} and {} step{}\n",
      links.empty() ? "nothing between ranks" : fmt::format("{}", fmt::join(links, ", ")),
      moves.tables.size(), moves.tables.size() == 1 ? "" : "s", resharding.steps.size(),
      resharding.steps.size() == 1 ? "" : "s");
  const MovesWriter writer(request);
  const auto fault = std::find_if(moves.tables.begin(), moves.tables.end(),
                                  [](const TableMove& t) { return !t.torchrec_fault.empty(); });
  const auto alive = std::count_if(moves.tables.begin(), moves.tables.end(),
                                   [](const TableMove& t) { return t.torchrec_fault.empty(); });
  text += fmt::format("TorchRec's reshard can move {} of them in a running job", alive);
  if (fault != moves.tables.end()) {
    text += fmt::format("; {}: {}", writer.NameOf(fault->table), fault->torchrec_fault);
  }
  text += '\n';
  if (resharding.order == OrderKind::kFits) return text;
  return text + fmt::format("warning: {} without a buffer of {} beside the ranks' memory: {}\n",
                            resharding.order == OrderKind::kNeedsBuffer ? "no order fits"
                                                                        : "no order was found",
                            FormatBytes(resharding.buffer_bytes),
                            writer.CycleText(resharding.cycle));
}

}  // namespace neuroshard
