#include "client/cli/plan_moves.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
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
  const int ranks_before = request.migration->previous.world_size;
  if (ranks_before > 0 && ranks_before != ranks) {
    return fmt::format("a running job keeps its {} rank{}, and there are {} now", ranks_before,
                       ranks_before == 1 ? "" : "s", ranks);
  }
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

// Tables of which a shard is made only after others went to the buffer, since it did not fit before.
std::set<int> TablesBehindABuffer(const Resharding& resharding) {
  std::set<int> tables;
  bool buffered = false;
  for (const ReshardingStep& step : resharding.steps) {
    for (const MadeShard& made : step.made) {
      if (buffered) tables.insert(made.made.table);
    }
    buffered = buffered || !step.to_buffer.empty();
  }
  return tables;
}

// "a, b: no; c: never": by reason, in the order of the tables.
std::string FaultsText(const std::vector<TableMove>& tables, const TableNames& names) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::pair<std::string_view, std::vector<std::string_view>>> by_fault;
  for (const TableMove& table : tables) {
    if (table.torchrec_fault.empty()) continue;
    auto same = std::find_if(by_fault.begin(), by_fault.end(), [&](const auto& fault) {
      return fault.first == table.torchrec_fault;
    });
    if (same == by_fault.end()) same = by_fault.insert(same, {table.torchrec_fault, {}});
    same->second.push_back(names.ReferenceTo(table.table));
  }
  std::string text;
  for (auto& [fault, named] : by_fault) {
    const std::size_t shown = named.size() <= kNamed + 1 ? named.size() : kNamed;
    text += fmt::format(
        "; {}{}: {}", fmt::join(named.begin(), named.begin() + static_cast<long>(shown), ", "),
        shown < named.size() ? fmt::format(" and {} more", named.size() - shown) : "", fault);
  }
  return text;
}

class MovesWriter {
 public:
  explicit MovesWriter(const PlanRequest& request) : names_(request.tables) {}

  const TableNames& names() const { return names_; }
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
        MovesJson json = {{"from_rank", part.from_rank},
                          {"link", ToText(part.link)},
                          {"from_memory", ToText(part.from_memory)},
                          {"memory", ToText(part.memory)}};
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
      const int holder = waiting.holds.shard.rank;
      parts.push_back(fmt::format(
          "rank {} has no room{} for its part of {} until {} part of {} {}", waiting.rank,
          MemoryText(waiting.memory), NameOf(waiting.wants.table),
          holder == waiting.rank ? "its" : fmt::format("rank {}'s", holder),
          NameOf(waiting.holds.table),
          waiting.next_rank == holder ? "is made anew there"
                                      : fmt::format("is on rank {}", waiting.next_rank)));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  }

 private:
  static std::string_view MemoryText(MemoryTier memory) {
    static constexpr ByTier<std::string_view> kTexts = {"", " in host memory", " on SSD"};
    return kTexts[memory];
  }

  static void AddRectangle(const Shard& shard, MovesJson& json) {
    json["row_offset"] = shard.row_offset;
    json["rows"] = shard.rows;
    json["col_offset"] = shard.col_offset;
    json["cols"] = shard.cols;
  }

  TableNames names_;
};

std::int64_t BytesOf(const Resharding& resharding, PartLink link) {
  return resharding.bytes_by_link[static_cast<std::size_t>(link)];
}

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
  const std::set<int> waiting = TablesBehindABuffer(moves.resharding);
  for (const int table : moved) {
    TableMove move{table, TorchRecFault(request, request.tables[static_cast<std::size_t>(table)],
                                        *Find(previous, before, table), *Find(plan, after, table))};
    if (move.torchrec_fault.empty() && waiting.contains(table)) {
      move.torchrec_fault = "its ranks have no room without a buffer, and TorchRec has none";
    }
    moves.tables.push_back(std::move(move));
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
                     {"next_rank", waiting.next_rank},
                     {"memory", ToText(waiting.memory)}});
  }
  MovesJson bytes = MovesJson::object();
  for (const auto& word : kWords<PartLink>) {
    if (word.value == PartLink::kSameRank) continue;
    bytes[std::string(word.text)] = BytesOf(resharding, word.value);
  }
  bytes["between_memories"] = BytesOf(resharding, PartLink::kSameRank);
  MovesJson ranks = MovesJson::array();
  for (std::size_t rank = 0; rank < resharding.peak_bytes.size(); ++rank) {
    ranks.push_back({{"rank", rank},
                     {"peak_bytes", resharding.peak_bytes[rank]},
                     {"capacity_bytes", resharding.capacity_bytes[rank]}});
  }
  MovesJson shared = MovesJson::array();
  for (const SharedMemoryPeak& peak : resharding.shared) {
    MovesJson json = {{"memory", ToText(peak.memory)}, {"host", peak.host}};
    if (peak.rank) json["rank"] = *peak.rank;
    json["peak_bytes"] = peak.peak_bytes;
    json["capacity_bytes"] = peak.capacity_bytes;
    shared.push_back(std::move(json));
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
                              {"shared_memory", std::move(shared)},
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
    const std::int64_t bytes = BytesOf(resharding, word.value);
    if (bytes == 0) continue;
    links.push_back(fmt::format("{} {}",
                                word.value == PartLink::kSameRank ? "between_memories" : word.text,
                                FormatBytes(bytes)));
  }
  std::string text = fmt::format(
      "moves: {} in {} table{} and {} step{}\n",
      links.empty() ? "nothing between ranks" : fmt::format("{}", fmt::join(links, ", ")),
      moves.tables.size(), moves.tables.size() == 1 ? "" : "s", resharding.steps.size(),
      resharding.steps.size() == 1 ? "" : "s");
  const MovesWriter writer(request);
  const auto alive = std::count_if(moves.tables.begin(), moves.tables.end(),
                                   [](const TableMove& t) { return t.torchrec_fault.empty(); });
  text += fmt::format("TorchRec's reshard can move {} of them in a running job", alive);
  text += FaultsText(moves.tables, writer.names()) + '\n';
  if (resharding.order == OrderKind::kFits) return text;
  return text + fmt::format("warning: {} without a buffer of {} beside the ranks' memory: {}\n",
                            resharding.order == OrderKind::kNeedsBuffer ? "no order fits"
                                                                        : "no order was found",
                            FormatBytes(resharding.buffer_bytes),
                            writer.CycleText(resharding.cycle));
}

}  // namespace neuroshard
