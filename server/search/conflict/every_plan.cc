#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "common/base/positions.h"
#include "common/domain/shard_layout.h"
#include "server/evaluate/lay_out.h"
#include "server/evaluate/placement_ledger.h"
#include "server/search/conflict/proof_parts.h"

namespace neuroshard {
namespace {

// Shards that are put somewhere; some milliseconds.
constexpr int kMaxPlanSteps = 20'000;
// Calls nest once a table and once a column block.
constexpr std::int64_t kMaxPlanDepth = 300;
constexpr std::array kSimplestFirst = {ShardingType::kTableWise,       ShardingType::kRowWise,
                                       ShardingType::kDataParallel,    ShardingType::kTableRowWise,
                                       ShardingType::kRowWiseSubset,   ShardingType::kColumnWise,
                                       ShardingType::kTableColumnWise, ShardingType::kGridShard};

// Depth-first, table by table, on a ledger that takes back what fails.
class Attempt {
 public:
  Attempt(const PlanRequest& request, const CompiledRules& rules, const std::vector<TypeSet>& types)
      : request_(request),
        rules_(rules),
        types_(types),
        ledger_(request, rules),
        // Those with the fewest ranks first: their conflicts show early.
        order_(PositionsDescending<int>(
            types.size(), [&](int table) { return -std::ssize(rules.of(table).ranks->ranks()); })) {
    residency_of_.resize(request.tables.size());
  }

  EveryPlanResult Run() {
    EveryPlanResult result;
    if (PlaceFrom(0)) {
      result.plan = ledger_.MakePlan();
    } else {
      result.all_tried = !IsTired();
    }
    return result;
  }

 private:
  using Shards = std::vector<Shard>;

  const Table& TableOf(int table) const { return At(request_.tables, table); }

  bool IsTired() const { return steps_ > kMaxPlanSteps; }

  // Whether the tables order_[at] and later find places, which they have then.
  bool PlaceFrom(std::size_t at) {
    if (at == order_.size()) return true;
    for (const int residency : rules_.PlacesOffDevice(order_[at])) {
      if (PlaceIn(at, residency)) return true;
    }
    const std::vector<int>& residencies = *rules_.of(order_[at]).residencies;
    return !residencies.empty() && residencies.back() == 0 && PlaceIn(at, 0);
  }

  // Whether they find places with the first of them, order_[at], in the residency.
  bool PlaceIn(std::size_t at, int residency) {
    const int table = order_[at];
    At(residency_of_, table) = residency;
    if (const auto& kept = rules_.of(table).kept; kept != nullptr) {
      return With(table, kept->sharding_type, LayoutOf(*kept).row_shards, kept->shards,
                  [&] { return PlaceFrom(at + 1); });
    }
    return std::ranges::any_of(kSimplestFirst, [&](ShardingType type) {
      if (!At(types_, table).contains(type) || !rules_.Allows(table, residency, type)) {
        return false;
      }
      if (type != ShardingType::kRowWiseSubset) return PlaceColumns(at, type, 0, 0, 0);
      std::vector<int> holders;
      const Block whole = {0, TableOf(table).embedding_dim};
      return TrySubsets(rules_.of(table).ranks->ranks(), 0, rules_.of(table).max_shards, holders,
                        [&] {
                          const Shards shards = LayOut(TableOf(table), type, {&whole, 1}, holders,
                                                       rules_.hosts(), rules_.row_cut(table));
                          return With(table, type, static_cast<int>(shards.size()), shards,
                                      [&] { return PlaceFrom(at + 1); });
                        });
    });
  }

  template <typename Try>
  bool TrySubsets(const std::vector<int>& ranks, std::size_t from, int most,
                  std::vector<int>& holders, const Try& attempt) {
    if (holders.size() >= 2 && attempt()) return true;
    if (static_cast<int>(holders.size()) == most) return false;
    for (std::size_t i = from; i < ranks.size(); ++i) {
      ++steps_;
      if (IsTired()) return false;
      holders.push_back(ranks[i]);
      const bool found = TrySubsets(ranks, i + 1, most, holders, attempt);
      holders.pop_back();
      if (found) return true;
    }
    return false;
  }

  // Whether a block may be so wide; of types that cut no columns, all of the table is one.
  static bool IsBlock(const TableRules& of, ShardingType type, std::int64_t dim,
                      std::int64_t cols) {
    if (!CutsColumns(type)) return cols == dim;
    return (cols >= of.min_column_width || cols == dim) && cols <= of.max_column_width &&
           (of.column_block == 0 || cols == of.column_block);
  }

  // Columns from `begin` on, in one block or several; `row_shards` are those of the first block.
  bool PlaceColumns(std::size_t at, ShardingType type, std::int64_t begin, int shards,
                    int row_shards) {
    static const std::vector<int> kEverywhere = {0};
    const int table = order_[at];
    const TableRules& of = rules_.of(table);
    const std::int64_t dim = TableOf(table).embedding_dim;
    if (begin == dim) return PlaceFrom(at + 1);
    const bool on_one_host = type == ShardingType::kTableColumnWise;
    const std::vector<int>& places = TakesEveryRank(type)                 ? kEverywhere
                                     : SpreadOf(type) == Spread::kOneHost ? of.ranks->whole_hosts()
                                                                          : of.ranks->ranks();
    for (std::int64_t end = dim; end > begin; end = PreviousCut(end)) {
      if (!IsBlock(of, type, dim, end - begin)) continue;
      const Block block = {begin, end - begin};
      for (const int place : places) {
        if (IsTired()) return false;
        if (on_one_host && begin > 0 && rules_.host_of(place) != column_host_) continue;
        const Shards added = LayOut(TableOf(table), type, std::span(&block, 1),
                                    std::span(&place, 1), rules_.hosts(), rules_.row_cut(table));
        const int total = shards + static_cast<int>(added.size());
        if (total > of.max_shards) continue;
        const int first_rows = begin == 0 ? static_cast<int>(added.size()) : row_shards;
        const int host_before = column_host_;
        if (on_one_host) column_host_ = rules_.host_of(place);
        const bool found = With(table, type, CutsRows(type) ? first_rows : 1, added,
                                [&] { return PlaceColumns(at, type, end, total, first_rows); });
        column_host_ = host_before;
        if (found) return true;
      }
    }
    return false;
  }

  static std::int64_t PreviousCut(std::int64_t end) {
    return (end - 1) / kColumnAlignment * kColumnAlignment;
  }

  // Whether the rest finds its place while these shards, added to the table's, are where they are.
  template <typename Rest>
  bool With(int table, ShardingType type, int row_shards, const Shards& shards, const Rest& rest) {
    steps_ += static_cast<int>(shards.size());
    if (IsTired()) return false;
    const int residency = At(residency_of_, table);
    const ShardLayout layout =
        LayoutIn(rules_.residency(residency), type, row_shards, rules_.row_cut(table));
    if (ledger_.Put(table, layout, shards) != PlacementLedger::Answer::kYes) return false;
    if (rest()) return true;
    ledger_.Take(table, layout, shards);
    return false;
  }

  const PlanRequest& request_;
  const CompiledRules& rules_;
  const std::vector<TypeSet>& types_;
  PlacementLedger ledger_;
  const std::vector<int> order_;
  std::vector<int> residency_of_;  // by table
  int column_host_ = 0;            // of the table_column_wise table that is being placed
  int steps_ = 0;
};

}  // namespace

EveryPlanResult TryEveryPlan(const PlanRequest& request, const CompiledRules& rules,
                             const std::vector<TypeSet>& types) {
  std::int64_t depth = 0;
  for (std::size_t t = 0; t < types.size(); ++t) {
    depth += 1 + request.tables[t].embedding_dim / kColumnAlignment;
  }
  if (depth > kMaxPlanDepth) return {};
  return Attempt(request, rules, types).Run();
}

}  // namespace neuroshard
