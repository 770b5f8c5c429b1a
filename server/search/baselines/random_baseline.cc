#include "server/search/baselines/random_baseline.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/random.h"
#include "server/search/packing/find_packing.h"

namespace neuroshard {

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
