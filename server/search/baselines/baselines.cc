#include "server/search/baselines/baselines.h"

#include <algorithm>
#include <cmath>
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
      return rows * dim * ElementBytes(table.weight_dtype);
    case TableLoad::kDim:
      return dim;
    case TableLoad::kLookup:
      return dim * table.pooling_factor;
    case TableLoad::kSizeLookup:
      return dim * table.pooling_factor * std::log10(rows);
  }
  return 0;
}

// Pieces in the order given, each to the rank of choose(piece, ranks with room, bytes used by rank).
// Empty: a piece found no room, or the context said stop.
template <typename Choose>
std::optional<Placement> PlaceEach(SearchContext& context, std::vector<Piece> pieces,
                                   const std::vector<std::size_t>& order, const Choose& choose) {
  const PlanRequest& request = context.request();
  const std::vector<std::int64_t> available = AvailableBytes(request);
  std::vector<std::int64_t> used(available.size());
  std::vector<std::size_t> with_room;
  Placement placement{std::move(pieces), std::vector<int>(order.size())};
  for (const std::size_t i : order) {
    if (context.ShouldStop()) return std::nullopt;
    const Piece& piece = placement.pieces[i];
    const std::int64_t bytes = PieceBytes(request, piece.table, piece.cols);
    with_room.clear();
    for (std::size_t r = 0; r < available.size(); ++r) {
      if (used[r] + bytes <= available[r]) with_room.push_back(r);
    }
    if (with_room.empty()) return std::nullopt;
    const std::size_t rank = choose(i, with_room, used);
    used[rank] += bytes;
    placement.rank_of_piece[i] = static_cast<int>(rank);
  }
  return placement;
}

// The placement of LeastPieces, or FindPacking's in its place.
Status Answer(SearchContext& context, const std::vector<Piece>& pieces,
              std::optional<Placement> placement) {
  if (context.stopped()) return absl::OkStatus();
  if (!placement) {
    const Cutting cutting = CuttingOf(context.request(), pieces);
    NS_ASSIGN_OR_RETURN(placement, FindPacking(context.request(), cutting, context.stop()));
  }
  ++context.statistics().plans_evaluated;
  return context.Improve(*placement);
}

}  // namespace

std::optional<Placement> PlaceByLoad(SearchContext& context, TableLoad load,
                                     std::vector<Piece> pieces) {
  std::vector<double> loads;
  for (const Piece& piece : pieces) {
    const Table& table = context.request().tables[static_cast<std::size_t>(piece.table)];
    loads.push_back(LoadOf(table, piece.cols, load));
  }
  std::vector<double> of_rank(context.request().topology.devices.size());
  return PlaceEach(
      context, std::move(pieces),
      PositionsDescending(loads.size(), [&](std::size_t piece) { return loads[piece]; }),
      [&](std::size_t piece, const auto& with_room, const auto& used) {
        const std::size_t rank =
            *std::ranges::min_element(with_room, [&](std::size_t a, std::size_t b) {
              return std::pair(of_rank[a], used[a]) < std::pair(of_rank[b], used[b]);
            });
        of_rank[rank] += loads[piece];
        return rank;
      });
}

Status RunGreedyBaseline(SearchContext& context, TableLoad load) {
  const std::vector<Piece> pieces = LeastPieces(context.request());
  return Answer(context, pieces, PlaceByLoad(context, load, pieces));
}

Status RunRandomBaseline(SearchContext& context) {
  const std::vector<Piece> pieces = LeastPieces(context.request());
  Random random(context.request().search.seed.value_or(0));
  return Answer(context, pieces,
                PlaceEach(context, pieces, Positions(pieces.size()),
                          [&](std::size_t piece, const auto& with_room, const auto&) {
                            const std::size_t rank = with_room[random.Below(with_room.size())];
                            context.ReportProgress(static_cast<double>(piece + 1) /
                                                   static_cast<double>(pieces.size()));
                            return rank;
                          }));
}

}  // namespace neuroshard
