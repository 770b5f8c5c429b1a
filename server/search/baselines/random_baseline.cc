#include "server/search/baselines/random_baseline.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/random.h"
#include "server/search/packing/find_packing.h"

namespace neuroshard {

Status RandomBaseline::Search(SearchContext& context) const {
  const PlanRequest& request = context.request();
  const std::size_t num_tables = request.tables.size();
  Random random(request.search.seed.value_or(0));
  const std::vector<std::int64_t> available = AvailableBytes(request);
  std::vector<std::int64_t> used(available.size(), 0);
  std::vector<std::size_t> with_room;
  Placement placement{WholeTables(request), std::vector<int>(num_tables, 0)};
  for (std::size_t t = 0; t < num_tables; ++t) {
    if (context.ShouldStop()) return absl::OkStatus();
    const std::int64_t bytes =
        PieceBytes(request, static_cast<int>(t), request.tables[t].embedding_dim);
    with_room.clear();
    for (std::size_t r = 0; r < available.size(); ++r) {
      if (used[r] + bytes <= available[r]) with_room.push_back(r);
    }
    if (with_room.empty()) {
      NS_ASSIGN_OR_RETURN(placement, FindPacking(request, Cutting::kWholeTables, context.stop()));
      break;
    }
    const std::size_t rank = with_room[random.Below(with_room.size())];
    used[rank] += bytes;
    placement.rank_of_piece[t] = static_cast<int>(rank);
    context.ReportProgress(static_cast<double>(t + 1) / static_cast<double>(num_tables));
  }
  ++context.statistics().plans_evaluated;
  return context.Improve(placement);
}

}  // namespace neuroshard
