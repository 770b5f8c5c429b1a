#include "server/evaluate/stash.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/failure_reason.h"
#include "common/base/violations.h"
#include "common/domain/memory_use.h"
#include "common/domain/table_names.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/rules/row_cuts.h"

namespace neuroshard {
namespace {

// Exchanges that are tried for one plan, times the ranks that each changes, at most.
constexpr std::int64_t kMostTries = 20'000'000;

struct BytesOnRank {
  int rank = 0;
  std::int64_t bytes = 0;
};

// The choice of tables for one plan. Begins with the first that are enough, and leaves out what need
// not be.
class StashChoice {
 public:
  StashChoice(const PlanRequest& request, const Plan& plan)
      : request_(request),
        on_ranks_(request.tables.size()),
        may_change_(request.tables.size()),
        is_stashed_(request.tables.size()),
        tables_of_rank_(request.topology.devices.size()),
        is_done_(request.topology.devices.size()),
        stashed_(request.topology.devices.size()),
        needed_(request.topology.devices.size()) {
    const std::vector<Device>& devices = request.topology.devices;
    for (std::size_t r = 0; r < devices.size(); ++r) {
      const std::int64_t capacity = devices[r].memory_bytes;
      needed_[r] = ReserveBytes(request.memory, capacity) + request.memory.dense_bytes - capacity;
    }
    const std::vector<int> table_of = TablesOf(plan, request.tables);
    const RowCuts row_cuts(request);
    for (std::size_t p = 0; p < plan.tables.size(); ++p) {
      Add(table_of[p], plan.tables[p], row_cuts.of(table_of[p]));
    }
  }

  Status Run() {
    lacking_ = std::count_if(needed_.begin(), needed_.end(), [](auto bytes) { return bytes > 0; });
    for (std::size_t t = 0; t < on_ranks_.size(); ++t) {
      if (request_.tables[t].stash_weights) Put(static_cast<int>(t), true);
    }
    for (const int table : StashOrder(request_)) {
      if (lacking_ == 0) break;
      if (may_change_[static_cast<std::size_t>(table)]) Put(table, true);
    }
    for (std::size_t r = 0; r < needed_.size(); ++r) {
      if (stashed_[r] < needed_[r]) return TooLittle(r);
    }
    // Ranks that a step changes are all below what the one that it relieves was at: it ends.
    while (const std::optional<int> rank = Fullest()) {
      if (!Relieve(*rank)) is_done_[static_cast<std::size_t>(*rank)] = true;
    }
    return absl::OkStatus();
  }

  bool is_stashed(std::size_t table) const { return is_stashed_[table]; }

 private:
  void Add(int table, const TablePlan& plan, const RowCut& cut) {
    const std::size_t t = static_cast<std::size_t>(table);
    const ShardLayout layout = LayoutOf(plan, cut);
    Table stashed = request_.tables[t];
    stashed.stash_weights = true;
    std::vector<BytesOnRank>& on_ranks = on_ranks_[t];
    for (const Shard& shard : plan.shards) {
      const MemoryUse use = ShardMemory(request_, stashed, layout, shard.rows, shard.cols);
      AddBytes(needed_[static_cast<std::size_t>(shard.rank)], use.total_bytes());
      if (use.stashed_bytes > 0) on_ranks.push_back({shard.rank, use.stashed_bytes});
    }
    if (on_ranks.empty()) return;
    std::sort(on_ranks.begin(), on_ranks.end(),
              [](const BytesOnRank& a, const BytesOnRank& b) { return a.rank < b.rank; });
    std::size_t kept = 0;
    for (std::size_t i = 1; i < on_ranks.size(); ++i) {
      if (on_ranks[i].rank == on_ranks[kept].rank) {
        AddBytes(on_ranks[kept].bytes, on_ranks[i].bytes);
      } else {
        on_ranks[++kept] = on_ranks[i];
      }
    }
    on_ranks.resize(kept + 1);
    for (const BytesOnRank& on : on_ranks) {
      tables_of_rank_[static_cast<std::size_t>(on.rank)].push_back(table);
    }
    may_change_[t] = !request_.tables[t].stash_weights;
  }

  void Put(int table, bool is_stashed) {
    is_stashed_[static_cast<std::size_t>(table)] = is_stashed;
    for (const BytesOnRank& on : on_ranks_[static_cast<std::size_t>(table)]) {
      const std::size_t r = static_cast<std::size_t>(on.rank);
      const bool was_enough = stashed_[r] >= needed_[r];
      stashed_[r] += is_stashed ? on.bytes : -on.bytes;
      lacking_ += static_cast<int>(was_enough) - static_cast<int>(stashed_[r] >= needed_[r]);
    }
  }

  Status TooLittle(std::size_t rank) const {
    const std::int64_t kept = needed_[rank] - request_.memory.dense_bytes +
                              request_.topology.devices[rank].memory_bytes - stashed_[rank];
    return WithReason(
        FailedPrecondition(
            "memory.dense_bytes: rank {} keeps {} ({}) that cannot be stashed, the "
            "reserve included, and its device has {} beside the dense layers' {}: "
            "{} bytes short",
            rank, kept, FormatBytes(kept),
            request_.topology.devices[rank].memory_bytes - request_.memory.dense_bytes,
            request_.memory.dense_bytes, needed_[rank] - stashed_[rank]),
        FailureReason::kNoPlanFound);
  }

  // Of the ranks that are not done, the one that stashes most.
  std::optional<int> Fullest() const {
    std::optional<int> fullest;
    for (std::size_t r = 0; r < stashed_.size(); ++r) {
      if (is_done_[r]) continue;
      if (!fullest || stashed_[r] > stashed_[static_cast<std::size_t>(*fullest)]) {
        fullest = static_cast<int>(r);
      }
    }
    return fullest;
  }

  // Stashes less on the rank and nowhere as much as it did, if a table can be left out, or else
  // another stashed for it. Of several ways the one that leaves least.
  bool Relieve(int rank) {
    const std::vector<int>& tables = tables_of_rank_[static_cast<std::size_t>(rank)];
    const std::int64_t before = stashed_[static_cast<std::size_t>(rank)];
    std::int64_t least = before;
    std::pair<int, int> best = {-1, -1};
    const auto consider = [&](int out, int in) {
      const std::int64_t after = stashed_[static_cast<std::size_t>(rank)];
      if (after >= least || lacking_ > 0) return;
      if (in >= 0 && !IsBelow(before, in)) return;
      least = after;
      best = {out, in};
    };
    for (const int out : tables) {
      if (!IsStashed(out) || !may_change_[static_cast<std::size_t>(out)]) continue;
      Put(out, false);
      consider(out, -1);
      Put(out, true);
    }
    for (std::size_t i = 0; i < tables.size() && best.first < 0 && tries_ < kMostTries; ++i) {
      const int out = tables[i];
      if (!IsStashed(out) || !may_change_[static_cast<std::size_t>(out)]) continue;
      Put(out, false);
      for (const int in : tables) {
        if (in == out || IsStashed(in)) continue;
        tries_ += std::ssize(on_ranks_[static_cast<std::size_t>(in)]);
        Put(in, true);
        consider(out, in);
        Put(in, false);
      }
      Put(out, true);
    }
    if (best.first < 0) return false;
    Put(best.first, false);
    if (best.second < 0) return true;
    Put(best.second, true);
    for (const BytesOnRank& on : on_ranks_[static_cast<std::size_t>(best.second)]) {
      is_done_[static_cast<std::size_t>(on.rank)] = false;
    }
    return true;
  }

  bool IsStashed(int table) const { return is_stashed_[static_cast<std::size_t>(table)]; }
  bool IsBelow(std::int64_t bytes, int table) const {
    const std::vector<BytesOnRank>& on_ranks = on_ranks_[static_cast<std::size_t>(table)];
    return std::all_of(on_ranks.begin(), on_ranks.end(), [&](const BytesOnRank& on) {
      return stashed_[static_cast<std::size_t>(on.rank)] < bytes;
    });
  }

  const PlanRequest& request_;
  std::vector<std::vector<BytesOnRank>> on_ranks_;  // by table, ranks ascending
  std::vector<bool> may_change_;                    // by table
  std::vector<bool> is_stashed_;                    // by table
  std::vector<std::vector<int>> tables_of_rank_;    // that have something to stash there
  std::vector<bool> is_done_;                       // by rank: nothing relieves it
  std::vector<std::int64_t> stashed_;               // by rank
  std::vector<std::int64_t> needed_;                // by rank; below 0: nothing is
  std::ptrdiff_t lacking_ = 0;                      // ranks with too little stashed
  std::int64_t tries_ = 0;
};

}  // namespace

std::vector<int> StashOrder(const PlanRequest& request) {
  std::vector<double> ids_a_byte;
  for (const Table& table : request.tables) {
    ids_a_byte.push_back(
        table.pooling_factor / static_cast<double>(table.num_embeddings) /
        static_cast<double>(table.embedding_dim * ElementBytes(table.weight_dtype)));
  }
  std::vector<int> order(request.tables.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return ids_a_byte[static_cast<std::size_t>(a)] < ids_a_byte[static_cast<std::size_t>(b)];
  });
  return order;
}

StatusOr<PlanRequest> WithStash(const PlanRequest& request, const Plan& plan) {
  if (request.memory.dense_bytes == 0) return request;
  StashChoice choice(request, plan);
  NS_RETURN_IF_ERROR(choice.Run());
  PlanRequest stashed = request;
  for (std::size_t t = 0; t < stashed.tables.size(); ++t) {
    stashed.tables[t].stash_weights = choice.is_stashed(t);
  }
  // The plan itself is legal.
  if (const std::vector<Violation> faults = CheckPlan(stashed, plan); !faults.empty()) {
    return WithReason(FailedPrecondition("memory.dense_bytes: copies of what has to be stashed do "
                                         "not fit: {}",
                                         faults.front().description),
                      FailureReason::kNoPlanFound);
  }
  return stashed;
}

std::int64_t MaxStashedBytes(const PlanRequest& request, const Plan& plan) {
  std::vector<std::int64_t> of_rank(request.topology.devices.size());
  const std::vector<int> table_of = TablesOf(plan, request.tables);
  const RowCuts row_cuts(request);
  for (std::size_t p = 0; p < plan.tables.size(); ++p) {
    const Table& table = request.tables[static_cast<std::size_t>(table_of[p])];
    if (!table.stash_weights) continue;
    const ShardLayout layout = LayoutOf(plan.tables[p], row_cuts.of(table_of[p]));
    for (const Shard& shard : plan.tables[p].shards) {
      AddBytes(of_rank[static_cast<std::size_t>(shard.rank)],
               ShardMemory(request, table, layout, shard.rows, shard.cols).stashed_bytes);
    }
  }
  return *std::max_element(of_rank.begin(), of_rank.end());
}

StashReport ReportStash(const PlanRequest& request, const PlanCost& cost) {
  StashReport report;
  const TableNames names(request.tables);
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    if (!request.tables[t].stash_weights) continue;
    report.tables.push_back(names.ReferenceTo(static_cast<int>(t)));
  }
  for (const RankCost& rank : cost.ranks) {
    const std::int64_t total = rank.memory.total_bytes();
    const std::int64_t stashed = rank.memory.stashed_bytes;
    report.max_stashed_bytes = std::max(report.max_stashed_bytes, stashed);
    report.peak_bytes = std::max(report.peak_bytes, total - stashed);
    report.peak_bytes_without = std::max(report.peak_bytes_without, total);
  }
  return report;
}

}  // namespace neuroshard
