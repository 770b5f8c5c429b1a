#include "server/evaluate/stash.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <tuple>

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
constexpr std::int64_t kMaxTries = 2'000'000;

// What of a table can be stashed, by rank.
using BytesByRank = std::map<int, std::int64_t>;

// The choice of tables for one plan. Begins with the first that are enough, and leaves out what need
// not be. One call of Run.
class StashChoice {
 public:
  StashChoice(const PlanRequest& request, const Plan& plan)
      : request_(request),
        bytes_(request.tables.size()),
        is_stashed_(request.tables.size()),
        ranks_(request.topology.devices.size()) {
    const std::vector<int> table_of = TablesOf(plan, request.tables);
    const RowCuts row_cuts(request);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const std::int64_t capacity = request.topology.devices[r].memory_bytes;
      ranks_[r].needed =
          ReserveBytes(request.memory, capacity) + request.memory.dense_bytes - capacity;
    }
    for (std::size_t p = 0; p < plan.tables.size(); ++p) {
      const std::size_t t = static_cast<std::size_t>(table_of[p]);
      const ShardLayout layout = LayoutOf(plan.tables[p], row_cuts.of(table_of[p]));
      Table stashed = request.tables[t];
      stashed.stash_weights = true;
      for (const Shard& shard : plan.tables[p].shards) {
        const MemoryUse use = ShardMemory(request, stashed, layout, shard.rows, shard.cols);
        AddBytes(rank(shard.rank).needed, use.total_bytes());
        if (use.stashed_bytes > 0) AddBytes(bytes_[t][shard.rank], use.stashed_bytes);
      }
      for (const auto& [r, bytes] : bytes_[t]) rank(r).tables.push_back(table_of[p]);
    }
    if (request.memory.dense_bytes > 0) return;
    // Nothing has to leave: a reserve beyond the device is no fault of a rank that holds nothing.
    for (Rank& of : ranks_) of.needed = std::min<std::int64_t>(of.needed, 0);
  }

  Status Run() {
    lacking_ = std::ranges::count_if(ranks_, [](const Rank& of) { return of.needed > 0; });
    for (std::size_t t = 0; t < is_stashed_.size(); ++t) {
      if (request_.tables[t].stash_weights) Put(static_cast<int>(t), true);
    }
    for (const int table : StashOrder(request_)) {
      if (lacking_ > 0 && !is_stashed(table) && !bytes(table).empty()) Put(table, true);
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].stashed < ranks_[r].needed) return TooLittle(r);
    }
    // Ranks that a step changes are all below what the one that it relieves was at: it ends.
    while (Rank* fullest = Fullest()) {
      if (!Relieve(*fullest)) fullest->is_done = true;
    }
    return absl::OkStatus();
  }

  std::int64_t max_bytes() const { return std::ranges::max(ranks_, {}, &Rank::stashed).stashed; }
  bool is_stashed(int table) const { return is_stashed_[static_cast<std::size_t>(table)]; }

 private:
  struct Rank {
    std::int64_t needed = 0;  // to be stashed; below 0: nothing is
    std::int64_t stashed = 0;
    std::vector<int> tables;  // of which something can be
    bool is_done = false;     // nothing relieves it
  };

  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  const BytesByRank& bytes(int table) const { return bytes_[static_cast<std::size_t>(table)]; }
  bool MayLeave(int table) const {
    return is_stashed(table) && !request_.tables[static_cast<std::size_t>(table)].stash_weights;
  }

  void Put(int table, bool is_stashed) {
    is_stashed_[static_cast<std::size_t>(table)] = is_stashed;
    for (const auto& [r, bytes] : bytes(table)) {
      Rank& of = rank(r);
      lacking_ += of.stashed >= of.needed;
      of.stashed += is_stashed ? bytes : -bytes;
      lacking_ -= of.stashed >= of.needed;
    }
  }

  Status TooLittle(std::size_t r) const {
    const std::int64_t left =
        request_.topology.devices[r].memory_bytes - request_.memory.dense_bytes;
    const std::int64_t too_few = ranks_[r].needed - ranks_[r].stashed;
    return WithReason(
        FailedPrecondition("memory.dense_bytes: rank {} keeps {} ({}) that cannot be stashed, the "
                           "reserve included, and its device has {} beside the dense layers' {}: "
                           "{} bytes short",
                           r, left + too_few, FormatBytes(left + too_few), left,
                           request_.memory.dense_bytes, too_few),
        FailureReason::kNoPlanFound);
  }

  // The rank that stashes most of those that are not done; null: all are.
  Rank* Fullest() {
    Rank* fullest = nullptr;
    for (Rank& of : ranks_) {
      if (!of.is_done && (fullest == nullptr || of.stashed > fullest->stashed)) fullest = &of;
    }
    return fullest;
  }

  // Stashes less on the rank and nowhere as much as it did, if a table can be left out, or else
  // another stashed for it. Of several ways the one that leaves least.
  bool Relieve(const Rank& of) {
    const std::int64_t before = of.stashed;
    std::int64_t least = before;
    int best_out = -1, best_in = -1;
    const auto consider = [&](int out, int in) {
      if (lacking_ > 0 || of.stashed >= least) return;
      if (in >= 0 && std::ranges::any_of(bytes(in), [&](const auto& on) {
            return rank(on.first).stashed >= before;
          })) {
        return;
      }
      least = of.stashed;
      std::tie(best_out, best_in) = std::tie(out, in);
    };
    for (const bool exchanges : {false, true}) {
      for (const int out : of.tables) {
        if (!MayLeave(out) || (exchanges && tries_ > kMaxTries)) continue;
        Put(out, false);
        if (!exchanges) consider(out, -1);
        for (const int in : exchanges ? of.tables : std::vector<int>()) {
          if (in == out || is_stashed(in)) continue;
          tries_ += std::ssize(bytes(in));
          Put(in, true);
          consider(out, in);
          Put(in, false);
        }
        Put(out, true);
      }
      if (best_out >= 0) break;
    }
    if (best_out < 0) return false;
    Put(best_out, false);
    if (best_in < 0) return true;
    Put(best_in, true);
    for (const auto& [r, bytes] : bytes(best_in)) rank(r).is_done = false;
    return true;
  }

  const PlanRequest& request_;
  std::vector<BytesByRank> bytes_;  // by table
  std::vector<bool> is_stashed_;    // by table
  std::vector<Rank> ranks_;
  std::ptrdiff_t lacking_ = 0;  // ranks with too little stashed
  std::int64_t tries_ = 0;
};

}  // namespace

std::vector<int> StashOrder(const PlanRequest& request) {
  const auto ids_a_byte = [&](int t) {
    const Table& table = request.tables[static_cast<std::size_t>(t)];
    return table.pooling_factor / static_cast<double>(table.num_embeddings) /
           (static_cast<double>(table.embedding_dim) * ElementBytes(table.weight_dtype));
  };
  std::vector<int> order(request.tables.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, ids_a_byte);
  return order;
}

StatusOr<Stash> ChooseStash(const PlanRequest& request, const Plan& plan) {
  StashChoice choice(request, plan);
  NS_RETURN_IF_ERROR(choice.Run());
  Stash stash = {request, choice.max_bytes()};
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    stash.request.tables[t].stash_weights = choice.is_stashed(static_cast<int>(t));
  }
  if (stash.request == request) return stash;
  // The plan itself is legal.
  if (const std::vector<Violation> faults = CheckPlan(stash.request, plan); !faults.empty()) {
    return WithReason(FailedPrecondition("memory.dense_bytes: copies of what has to be stashed do "
                                         "not fit: {}",
                                         faults.front().description),
                      FailureReason::kNoPlanFound);
  }
  return stash;
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
