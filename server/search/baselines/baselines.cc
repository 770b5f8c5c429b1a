#include "server/search/baselines/baselines.h"

#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/base/positions.h"
#include "common/base/random.h"
#include "server/search/packing/find_packing.h"

namespace neuroshard {
namespace {

double LoadOf(const Table& table, std::int64_t cols, TableLoad load) {
  const double rows = static_cast<double>(table.num_embeddings);
  const double dim = static_cast<double>(cols);
  switch (load) {
    case TableLoad::kSize:
      return rows * dim * static_cast<double>(ElementBytes(table.weight_dtype));
    case TableLoad::kDim:
      return dim;
    case TableLoad::kLookup:
      return dim * table.pooling_factor;
    case TableLoad::kSizeLookup:
      return dim * table.pooling_factor * std::log10(rows);
  }
  return 0;
}

// Ordered by what a greedy placement looks at: the load, of equal ones the bytes.
struct RankLoad {
  double load = 0;
  std::int64_t used_bytes = 0;

  auto operator<=>(const RankLoad&) const = default;
};

}  // namespace

std::optional<Placement> PlaceByLoad(SearchContext& context, TableLoad load,
                                     std::vector<Piece> pieces) {
  const PlanRequest& request = context.request();
  const std::size_t num_pieces = pieces.size();
  std::vector<double> loads;
  for (const Piece& piece : pieces) {
    loads.push_back(
        LoadOf(request.tables[static_cast<std::size_t>(piece.table)], piece.cols, load));
  }
  const std::vector<std::int64_t> available = AvailableBytes(request);
  std::vector<RankLoad> ranks(available.size());
  Placement placement{std::move(pieces), std::vector<int>(num_pieces, 0)};
  for (const std::size_t i :
       PositionsDescending(num_pieces, [&](std::size_t piece) { return loads[piece]; })) {
    if (context.ShouldStop()) return std::nullopt;
    const Piece& piece = placement.pieces[i];
    const std::int64_t bytes = PieceBytes(request, piece.table, piece.cols);
    std::optional<std::size_t> best;
    for (std::size_t r = 0; r < available.size(); ++r) {
      if (ranks[r].used_bytes + bytes > available[r]) continue;
      if (!best || ranks[r] < ranks[*best]) best = r;
    }
    if (!best) return std::nullopt;
    ranks[*best].load += loads[i];
    ranks[*best].used_bytes += bytes;
    placement.rank_of_piece[i] = static_cast<int>(*best);
  }
  return placement;
}

Status GreedyBaseline::Search(SearchContext& context) const {
  const PlanRequest& request = context.request();
  const std::vector<Piece> pieces = LeastPieces(request);
  std::optional<Placement> placement = PlaceByLoad(context, load_, pieces);
  if (context.stopped()) return absl::OkStatus();
  if (!placement) {
    NS_ASSIGN_OR_RETURN(placement,
                        FindPacking(request, CuttingOf(request, pieces), context.stop()));
  }
  ++context.statistics().plans_evaluated;
  return context.Improve(*placement);
}

Status RandomBaseline::Search(SearchContext& context) const {
  const PlanRequest& request = context.request();
  const std::vector<Piece> pieces = LeastPieces(request);
  const std::size_t num_pieces = pieces.size();
  Random random(request.search.seed.value_or(0));
  const std::vector<std::int64_t> available = AvailableBytes(request);
  std::vector<std::int64_t> used(available.size(), 0);
  std::vector<std::size_t> with_room;
  Placement placement{pieces, std::vector<int>(num_pieces, 0)};
  for (std::size_t i = 0; i < num_pieces; ++i) {
    if (context.ShouldStop()) return absl::OkStatus();
    const std::int64_t bytes = PieceBytes(request, pieces[i].table, pieces[i].cols);
    with_room.clear();
    for (std::size_t r = 0; r < available.size(); ++r) {
      if (used[r] + bytes <= available[r]) with_room.push_back(r);
    }
    if (with_room.empty()) {
      NS_ASSIGN_OR_RETURN(placement,
                          FindPacking(request, CuttingOf(request, pieces), context.stop()));
      break;
    }
    const std::size_t rank = with_room[random.Below(with_room.size())];
    used[rank] += bytes;
    placement.rank_of_piece[i] = static_cast<int>(rank);
    context.ReportProgress(static_cast<double>(i + 1) / static_cast<double>(num_pieces));
  }
  ++context.statistics().plans_evaluated;
  return context.Improve(placement);
}

}  // namespace neuroshard
