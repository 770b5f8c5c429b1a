#include "client/cli/plan_moves.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>
#include <utility>

#include "client/cli/text_table.h"
#include "common/base/bytes.h"
#include "common/codec/message_fields.h"
#include "common/domain/held_shards.h"
#include "common/domain/table_names.h"

namespace neuroshard {

// A shard as a rectangle.
NS_FIELDS(Shard, row_offset, rows, col_offset, cols);
NS_FIELDS(MovedPart, from_rank, link, from_memory, memory, weights_bytes, optimizer_bytes);
NS_FIELDS(SharedMemoryPeak, memory, host, rank, peak_bytes, capacity_bytes);
NS_FIELDS(Waiting, rank, next_rank, memory);

namespace {

bool IsLiveType(ShardingType type) {
  return type == ShardingType::kTableWise || type == ShardingType::kColumnWise;
}

bool RepeatsARank(const TablePlan& plan) {
  std::set<int> ranks;
  return std::ranges::any_of(plan.shards,
                             [&](const Shard& shard) { return !ranks.insert(shard.rank).second; });
}

bool CutsAlike(const TablePlan& a, const TablePlan& b) {
  return std::equal(a.shards.begin(), a.shards.end(), b.shards.begin(), b.shards.end(),
                    [](const Shard& x, const Shard& y) { return x.cols == y.cols; });
}

bool HasUnevenColumns(const TablePlan& plan) {
  return std::ranges::any_of(
      plan.shards, [&](const Shard& shard) { return shard.cols != plan.shards.front().cols; });
}

bool PartStaysOnItsRank(const TablePlan& before, const TablePlan& after) {
  return std::ranges::any_of(after.shards, [&](const Shard& made) {
    return std::ranges::any_of(before.shards, [&](const Shard& held) {
      return held.rank == made.rank && Overlap(made, held).has_value();
    });
  });
}

// Why TorchRec cannot move the table alive, by torchrec/distributed/sharding/dynamic_sharding.py
// and by what it did when it was tried (client/python/neuroshard/torchrec/training_test.py):
// update_module_sharding_plan does not detect a change of type,
// _prepare_shard_distribution_comm_ops fills the first local shard only and sends to its own rank
// too, row-wise state is not merged ("need a way to merge the optimizer"). Only
// EmbeddingBagCollectionSharder has reshard.
std::string TorchRecFault(const PlanRequest& request, const Table& table, const TablePlan& before,
                          const TablePlan& after) {
  const int ranks = request.topology.num_ranks();
  const int ranks_before = request.migration->previous.world_size;
  if (ranks_before > 0 && ranks_before != ranks) {
    return fmt::format("a running job keeps its {}, and there are {} now",
                       Counted(ranks_before, "rank"), ranks);
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
  if (request.optimizer_of(table) == Optimizer::kRowwiseAdagrad && !CutsAlike(before, after)) {
    return "row-wise Adagrad's state is lost where column blocks change";
  }
  if (request.topology.compute_device == ComputeDevice::kCpu && PartStaysOnItsRank(before, after)) {
    return "a part stays on its rank, and gloo does not send to the same rank";
  }
  return "";
}

const TablePlan* Find(const Plan& plan, const std::vector<int>& table_of, int table) {
  const auto found = std::ranges::find(table_of, table);
  return found == table_of.end() ? nullptr : &At(plan.tables, found - table_of.begin());
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
std::string FaultsText(const v1::MovesAnswer& moves) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::pair<std::string_view, std::vector<std::string_view>>> by_fault;
  for (const v1::MovesTable& table : moves.tables()) {
    if (table.torchrec_live()) continue;
    auto same = std::ranges::find_if(
        by_fault, [&](const auto& fault) { return fault.first == table.reason(); });
    if (same == by_fault.end()) same = by_fault.insert(same, {table.reason(), {}});
    same->second.push_back(table.table());
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

template <typename Message>
void SetShard(const TableNames& names, const TableShard& held, Message& message) {
  message.set_table(names.ReferenceTo(held.table));
  message.set_rank(held.shard.rank);
  PutFields(held.shard, message);
}

void SetStep(const TableNames& names, const ReshardingStep& step, v1::MovesStep& message) {
  for (const TableShard& shard : step.to_buffer) SetShard(names, shard, *message.add_to_buffer());
  for (const MadeShard& made : step.made) {
    v1::MovesMade& make = *message.add_make();
    SetShard(names, made.made, make);
    for (const MovedPart& of : made.parts) {
      v1::MovesPart& part = *make.add_parts();
      PutFields(of, part);
      PutFields(of.part, part);
    }
  }
  for (const TableShard& shard : step.freed) SetShard(names, shard, *message.add_free());
}

std::string CycleText(const v1::MovesAnswer& moves) {
  std::vector<std::string> parts;
  for (const v1::MovesWaiting& waiting : moves.cycle()) {
    const int holder = waiting.holds().rank();
    const MemoryTier memory = FromText<MemoryTier>(waiting.memory()).value_or(MemoryTier::kDevice);
    parts.push_back(fmt::format(
        "rank {} has no room{} for its part of {} until {} part of {} {}", waiting.rank(),
        memory == MemoryTier::kDevice ? "" : fmt::format(" {}", SharedMemoryOf(memory).place),
        waiting.wants().table(),
        holder == waiting.rank() ? "its" : fmt::format("rank {}'s", holder),
        waiting.holds().table(),
        waiting.next_rank() == holder ? "is made anew there"
                                      : fmt::format("is on rank {}", waiting.next_rank())));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The field of MovesBytes. Parts that stay on their rank move from one memory to another.
const FieldDescriptor* FieldOf(PartLink link) {
  return v1::MovesBytes::descriptor()->FindFieldByName(
      link == PartLink::kSameRank ? "between_memories" : std::string(ToText(link)));
}

void SetTables(const PlanRequest& request, const Plan& plan, const Resharding& resharding,
               const TableNames& names, v1::MovesAnswer& answer) {
  std::set<int> moved;
  for (const ReshardingStep& step : resharding.steps) {
    for (const MadeShard& made : step.made) moved.insert(made.made.table);
  }
  const Plan& previous = request.migration->previous;
  const std::vector<int> before = TablesOf(previous, request.tables);
  const std::vector<int> after = TablesOf(plan, request.tables);
  const std::set<int> waiting = TablesBehindABuffer(resharding);
  for (const int t : moved) {
    const Table& of = At(request.tables, t);
    std::string fault =
        TorchRecFault(request, of, *Find(previous, before, t), *Find(plan, after, t));
    if (fault.empty() && waiting.contains(t)) {
      fault = "its ranks have no room without a buffer, and TorchRec has none";
    }
    v1::MovesTable& table = *answer.add_tables();
    table.set_table(names.ReferenceTo(t));
    table.set_module(of.module);
    table.set_name(of.name);
    table.set_torchrec_live(fault.empty());
    table.set_reason(std::move(fault));
  }
}

}  // namespace

StatusOr<v1::MovesAnswer> MovesOf(const PlanRequest& request, const Plan& plan) {
  NS_ASSIGN_OR_RETURN(const Resharding resharding, Reshard(request, plan));
  const TableNames names(request.tables);
  v1::MovesAnswer answer;
  answer.set_format("neuroshard-moves/1");
  answer.set_order(std::string(ToText(resharding.order)));
  answer.set_buffer_bytes(resharding.buffer_bytes);
  for (const Waiting& of : resharding.cycle) {
    v1::MovesWaiting& waiting = *answer.add_cycle();
    PutFields(of, waiting);
    SetShard(names, of.wants, *waiting.mutable_wants());
    SetShard(names, of.holds, *waiting.mutable_holds());
  }
  for (const auto& [link, text] : kWords<PartLink>) {
    PutField(FieldOf(link), At(resharding.bytes_by_link, link), *answer.mutable_bytes());
  }
  for (std::size_t r = 0; r < resharding.peak_bytes.size(); ++r) {
    v1::MovesRank& rank = *answer.add_ranks();
    rank.set_rank(static_cast<int>(r));
    rank.set_peak_bytes(resharding.peak_bytes[r]);
    rank.set_capacity_bytes(resharding.capacity_bytes[r]);
  }
  for (const SharedMemoryPeak& peak : resharding.shared) {
    PutFields(peak, *answer.add_shared_memory());
  }
  SetTables(request, plan, resharding, names, answer);
  for (const TableShard& shard : resharding.freed_first) {
    SetShard(names, shard, *answer.add_freed_first());
  }
  for (const ReshardingStep& step : resharding.steps) SetStep(names, step, *answer.add_steps());
  return answer;
}

std::string MovesAsText(const v1::MovesAnswer& moves) {
  if (moves.tables().empty()) return "moves: nothing\n";
  std::vector<std::string> links;
  for (const auto& [link, text] : kWords<PartLink>) {
    const std::int64_t bytes = TakeField<std::int64_t>(moves.bytes(), FieldOf(link));
    if (bytes > 0) links.push_back(fmt::format("{} {}", FieldOf(link)->name(), FormatBytes(bytes)));
  }
  std::string text = fmt::format(
      "moves: {} in {} and {}\n",
      links.empty() ? "nothing between ranks" : fmt::format("{}", fmt::join(links, ", ")),
      Counted(moves.tables_size(), "table"), Counted(moves.steps_size(), "step"));
  text += fmt::format("TorchRec's reshard can move {} of them in a running job{}\n",
                      std::ranges::count_if(moves.tables(), &v1::MovesTable::torchrec_live),
                      FaultsText(moves));
  if (moves.order() == ToText(OrderKind::kFits)) return text;
  return text + fmt::format("warning: {} without a buffer of {} beside the ranks' memory: {}\n",
                            moves.order() == ToText(OrderKind::kNeedsBuffer) ? "no order fits"
                                                                             : "no order was found",
                            FormatBytes(moves.buffer_bytes()), CycleText(moves));
}

}  // namespace neuroshard
