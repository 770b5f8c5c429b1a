#include "server/search/testing/exhaustive_search.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "server/evaluate/check_plan.h"
#include "server/evaluate/price_plan.h"

namespace neuroshard {
namespace {

// All halvings of all tables on all ranks.
class Enumeration {
 public:
  Enumeration(const PlanRequest& request, const BoundCostModel& model)
      : request_(request), model_(model) {}

  ExhaustiveResult Run(int max_splits) {
    Split(WholeTables(request_), max_splits);
    return result_;
  }

 private:
  void Split(std::vector<Piece> pieces, int splits_left) {
    Assign({pieces, std::vector<int>(pieces.size(), 0)}, 0);
    if (splits_left == 0) return;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].cols % (2 * kColumnAlignment) != 0) continue;
      std::vector<Piece> child = pieces;
      child[i].cols /= 2;
      child.push_back({child[i].table, child[i].col_offset + child[i].cols, child[i].cols});
      Split(std::move(child), splits_left - 1);
    }
  }

  void Assign(Placement placement, std::size_t from) {
    if (from < placement.pieces.size()) {
      for (int rank = 0; rank < request_.topology.num_ranks(); ++rank) {
        placement.rank_of_piece[from] = rank;
        Assign(placement, from + 1);
      }
      return;
    }
    const Plan plan = BuildPlan(request_, placement);
    if (!CheckPlan(request_, plan).empty()) return;
    result_.feasible = true;
    const StatusOr<PlanCost> cost = PricePlan(request_, plan, model_);
    if (cost.ok()) result_.best_cost_ms = std::min(result_.best_cost_ms, cost->embedding_cost_ms);
  }

  const PlanRequest& request_;
  const BoundCostModel& model_;
  ExhaustiveResult result_;
};

// Every granule of columns to every rank, without any of the cleverness of the code under test: a
// table's shard on a rank is what the rank has of it.
bool AssignGranules(const PlanRequest& request, std::size_t table, std::int64_t col,
                    std::vector<std::vector<std::int64_t>>& cols_on) {
  if (table == request.tables.size()) {
    const std::vector<std::int64_t> available = AvailableBytes(request);
    for (std::size_t r = 0; r < available.size(); ++r) {
      std::int64_t bytes = 0;
      for (std::size_t t = 0; t < cols_on[r].size(); ++t) {
        if (cols_on[r][t] > 0) bytes += PieceBytes(request, static_cast<int>(t), cols_on[r][t]);
      }
      if (bytes > 0 && bytes > available[r]) return false;
    }
    return true;
  }
  const std::int64_t dim = request.tables[table].embedding_dim;
  if (col >= dim) return AssignGranules(request, table + 1, 0, cols_on);
  const std::int64_t granule = std::min(kColumnAlignment, dim - col);
  for (auto& on_rank : cols_on) {
    on_rank[table] += granule;
    const bool fits = AssignGranules(request, table, col + granule, cols_on);
    on_rank[table] -= granule;
    if (fits) return true;
  }
  return false;
}

}  // namespace

ExhaustiveResult ExhaustiveSearch(const PlanRequest& request, const BoundCostModel& model,
                                  int max_splits) {
  return Enumeration(request, model).Run(max_splits);
}

bool AnyColumnPackingFits(const PlanRequest& request) {
  std::vector<std::vector<std::int64_t>> cols_on(
      request.topology.devices.size(), std::vector<std::int64_t>(request.tables.size(), 0));
  return AssignGranules(request, 0, 0, cols_on);
}

}  // namespace neuroshard
