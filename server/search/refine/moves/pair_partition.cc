#include "server/search/refine/moves/pair_partition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/positions.h"

namespace neuroshard {
namespace {

class LimitedDiscrepancySearch {
 public:
  LimitedDiscrepancySearch(std::span<const PartitionItem> items,
                           const std::array<PartitionSide, 2>& sides, double below_ms,
                           std::size_t max_nodes)
      : items_(items),
        below_ms_(below_ms),
        max_nodes_(max_nodes),
        held_(sides),
        best_ms_(below_ms) {
    std::vector<double> sizes;
    for (const PartitionItem& item : items) {
      sizes.push_back(std::max(FillWith(item, 0), FillWith(item, 1)));
    }
    order_ = PositionsDescending(items.size(), [&](std::size_t i) { return sizes[i]; });
    side_of_.resize(items.size());
  }

  PartitionResult Run() {
    for (std::size_t d = 0; d <= items_.size() && nodes_ < max_nodes_; ++d) Visit(0, d);
    return {best_, nodes_};
  }

 private:
  // The largest of the side's time with the item, as a share of the limit, and of the shares that
  // the item takes of each memory that is left; infinite where a memory has less. Does not depend on
  // what was found so far, so all passes count discrepancies from the same sides.
  double FillWith(const PartitionItem& item, std::size_t side) const {
    double fill = (held_[side].ms + item.ms[side]) / below_ms_;
    for (const auto& [tier, name] : kWords<MemoryTier>) {
      const std::int64_t bytes = item.bytes[side][tier];
      const std::int64_t room = held_[side].room[tier];
      if (bytes <= 0) continue;
      if (bytes > room) return std::numeric_limits<double>::infinity();
      fill = std::max(fill, static_cast<double>(bytes) / static_cast<double>(room));
    }
    return fill;
  }

  // The partitions with exactly so many more discrepancies, those with fewer having been seen.
  void Visit(std::size_t depth, std::size_t discrepancies) {
    if (nodes_ == max_nodes_ || items_.size() - depth < discrepancies) return;
    ++nodes_;
    if (depth == items_.size()) {
      const double ms = std::max(held_[0].ms, held_[1].ms);
      if (ms >= best_ms_) return;
      best_ms_ = ms;
      best_ = side_of_;
      return;
    }
    const std::size_t i = order_[depth];
    const std::array fill = {FillWith(items_[i], 0), FillWith(items_[i], 1)};
    const std::size_t emptier = fill[1] < fill[0] ? 1 : 0;
    const auto visit_on = [&](std::size_t side, std::size_t left) {
      if (std::isinf(fill[side]) || held_[side].ms + items_[i].ms[side] >= best_ms_) return;
      Put(items_[i], side, 1);
      side_of_[i] = side;
      Visit(depth + 1, left);
      Put(items_[i], side, -1);
    };
    visit_on(emptier, discrepancies);
    if (discrepancies > 0) visit_on(1 - emptier, discrepancies - 1);
  }

  void Put(const PartitionItem& item, std::size_t side, int sign) {
    held_[side].ms += sign * item.ms[side];
    for (const auto& [tier, name] : kWords<MemoryTier>) {
      held_[side].room[tier] -= sign * item.bytes[side][tier];
    }
  }

  const std::span<const PartitionItem> items_;
  const double below_ms_;
  const std::size_t max_nodes_;
  std::vector<std::size_t> order_;  // the largest item first
  std::array<PartitionSide, 2> held_;
  std::vector<std::size_t> side_of_;
  std::size_t nodes_ = 0;
  double best_ms_;
  std::optional<std::vector<std::size_t>> best_;
};

}  // namespace

PartitionResult PartitionPair(std::span<const PartitionItem> items,
                              const std::array<PartitionSide, 2>& sides, double below_ms,
                              std::size_t max_nodes) {
  return LimitedDiscrepancySearch(items, sides, below_ms, max_nodes).Run();
}

}  // namespace neuroshard
