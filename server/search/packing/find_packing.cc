#include "server/search/packing/find_packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/failure_reason.h"
#include "common/domain/memory_use.h"
#include "common/domain/table_names.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/feasibility/find_feasible.h"
#include "server/search/packing/packers.h"

namespace neuroshard {
namespace {

constexpr std::size_t kTablesNamed = 5;
constexpr std::int64_t kMaxSum = std::int64_t{1} << 61;

std::string Quote(std::int64_t bytes) {
  return fmt::format("{} bytes ({})", bytes, FormatBytes(bytes));
}

// Bounds that exclude any plan, one after the other; says those that are broken.
class BoundsChecker {
 public:
  BoundsChecker(const PlanRequest& request, Cutting cutting)
      : request_(request), cutting_(cutting), names_(request.tables) {
    for (const std::int64_t bytes : AvailableBytes(request)) {
      ++ranks_with_[std::max<std::int64_t>(bytes, 0)];
    }
  }

  // Returns FAILED_PRECONDITION when one of these holds, and OK, which proves nothing, when none
  // does:
  // - A table (where columns are cut: its smallest possible piece) is larger than the room of any
  //   rank.
  // - Where columns are cut: a table has more columns than all ranks could take if they were empty.
  // - All tables together need more than all ranks have (cutting columns only adds to what a table
  //   needs).
  // OUT_OF_MEMORY where the weights and their optimizer state exceed the devices' memory, which
  // holds for every plan without host memory; otherwise NO_PLAN_FOUND, of plans that cut so.
  Status Run() {
    std::vector<std::string> reasons;
    std::size_t unplaceable = 0;
    for (std::size_t t = 0; t < request_.tables.size(); ++t) {
      std::string reason = WhyUnplaceable(static_cast<int>(t));
      if (reason.empty()) continue;
      if (++unplaceable <= kTablesNamed) reasons.push_back(std::move(reason));
    }
    if (unplaceable > kTablesNamed) {
      reasons.push_back(fmt::format("and {} more tables", unplaceable - kTablesNamed));
    }
    if (std::string reason = WhyTooMuch(); !reason.empty()) reasons.push_back(std::move(reason));
    if (reasons.empty()) return absl::OkStatus();
    const bool by_any_cut = WeightsBytes() > AllAvailable();
    return WithReason(
        FailedPrecondition("no plan can exist{}: {}", by_any_cut ? "" : PlansOf(cutting_),
                           fmt::join(reasons, "; ")),
        by_any_cut ? FailureReason::kOutOfMemory : FailureReason::kNoPlanFound);
  }

 private:
  std::string WhyUnplaceable(int table) const {
    const Table& of = request_.tables[static_cast<std::size_t>(table)];
    const std::string& name = names_.ReferenceTo(table);
    const std::int64_t largest = ranks_with_.rbegin()->first;
    const bool whole = cutting_ == Cutting::kWholeTables || of.embedding_dim <= kColumnAlignment;
    const std::int64_t cols = whole ? of.embedding_dim : kColumnAlignment;
    const std::int64_t bytes = PieceBytes(request_, table, cols);
    if (bytes > largest) {
      return fmt::format(
          "table '{}' needs {}{}, but no rank has more than {} available: {} bytes short", name,
          Quote(bytes), whole ? "" : fmt::format(" even in pieces of {} columns", cols),
          Quote(largest), bytes - largest);
    }
    if (whole || PieceBytes(request_, table, of.embedding_dim) <= largest) return "";
    std::int64_t columns = of.embedding_dim % kColumnAlignment;
    for (const auto& [available, ranks] : ranks_with_) {
      // The ragged rest, which only one rank can have, is counted above.
      columns += ranks * AlignedColumnsIn(request_, table, of.embedding_dim, available);
    }
    if (columns >= of.embedding_dim) return "";
    return fmt::format(
        "table '{}' has {} columns ({}), but all ranks together could hold at most {} of them, "
        "were there no other table: {} bytes short",
        name, of.embedding_dim, Quote(PieceBytes(request_, table, of.embedding_dim)), columns,
        PieceBytes(request_, table, of.embedding_dim - columns));
  }

  // Sums stop at 2^61, far above any cluster.
  std::int64_t AllAvailable() const {
    std::int64_t available = 0;
    for (const auto& [bytes, ranks] : ranks_with_) {
      available = bytes > kMaxSum / ranks ? kMaxSum : std::min(available + bytes * ranks, kMaxSum);
    }
    return available;
  }

  // What is there once, however tables are cut.
  std::int64_t WeightsBytes() const {
    std::int64_t sum = 0;
    for (const Table& table : request_.tables) {
      const MemoryUse use =
          ShardMemory(request_, table, {}, table.num_embeddings, table.embedding_dim);
      sum = std::min(sum + use.row_bytes(), kMaxSum);
    }
    return sum;
  }

  std::string WhyTooMuch() const {
    const std::int64_t available = AllAvailable();
    std::int64_t needed = 0;
    for (const std::int64_t bytes : WholeBytes(request_)) {
      needed = std::min(needed + bytes, kMaxSum);
    }
    if (needed <= available) return "";
    return fmt::format("the tables need {}, but the {} ranks have {} available: {} bytes short",
                       Quote(needed), request_.topology.num_ranks(), Quote(available),
                       needed - available);
  }

  const PlanRequest& request_;
  const Cutting cutting_;
  const TableNames names_;
  std::map<std::int64_t, std::int64_t> ranks_with_;  // by available bytes
};

// Whole tables in device memory, whatever else the request asks for.
Feasible FindWholeTables(PlanRequest request, const StopSignal& stop) {
  request.constraints = {};
  request.migration.reset();
  request.topology.host_memory_bytes.clear();
  return FindFeasible(request, CompiledRules(request, {ShardingType::kTableWise}), stop);
}

}  // namespace

StatusOr<Placement> FindPacking(const PlanRequest& request, Cutting cutting,
                                const StopSignal& stop) {
  NS_RETURN_IF_ERROR(BoundsChecker(request, cutting).Run());
  for (const PackingOrder order :
       {PackingOrder::kLargestTableFirst, PackingOrder::kLargestGranuleFirst}) {
    if (auto packed = PackBestFit(request, cutting, order)) return *std::move(packed);
  }
  const bool keeps_whole = cutting == Cutting::kWholeTables;
  bool all_tried = false;
  if (!keeps_whole) {
    ExactPacking exact = PackColumnsExactly(request);
    if (exact.placement.has_value()) return *std::move(exact.placement);
    all_tried = exact.exhausted;
  }
  if (!all_tried) {
    const Feasible whole = FindWholeTables(request, stop);
    if (whole.plan.has_value()) {
      return Placement{WholeTables(request), Mapped(whole.plan->tables, [](const TablePlan& table) {
                         return table.shards.front().rank;
                       })};
    }
    all_tried = keeps_whole && whole.none;
  }
  const char* const how = PlansOf(cutting);
  if (all_tried) {
    return WithReason(
        FailedPrecondition("no plan can exist{}: the tables fit into the memory of all ranks "
                           "together, but no way of distributing them keeps every rank within its "
                           "own (all were tried)",
                           how),
        FailureReason::kNoPlanFound);
  }
  return WithReason(
      FailedPrecondition("no plan was found{}: the tables would fit into the memory of all ranks "
                         "together, and neither heuristics nor a bounded exhaustive search found a "
                         "distribution that keeps every rank within its own; it is not proven that "
                         "there is none",
                         how),
      FailureReason::kNoPlanFound);
}

}  // namespace neuroshard
