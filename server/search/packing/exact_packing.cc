#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/positions.h"
#include "server/search/packing/packers.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxNodes = 300'000;     // some 10 ms
constexpr std::size_t kMaxPackingDepth = 4096;  // of the recursion: tables x ranks

// Depth first over the tables in descending bytes; columns go to the ranks one after the other, in
// granules of the alignment. A ragged table's last granule (the tail) is smaller than the others,
// and which piece has it matters for the bytes.
class ExactPacker {
 public:
  explicit ExactPacker(const PlanRequest& request)
      : request_(request), free_(AvailableBytes(request)) {
    const std::size_t num_tables = request.tables.size();
    std::vector<std::int64_t> whole;
    for (std::size_t t = 0; t < num_tables; ++t) {
      whole.push_back(PieceBytes(request, static_cast<int>(t), request.tables[t].embedding_dim));
    }
    order_ = PositionsDescending(num_tables, [&](std::size_t t) { return whole[t]; });
    remaining_bytes_.resize(num_tables + 1, 0);
    for (std::size_t i = num_tables; i-- > 0;) {
      remaining_bytes_[i] = std::min(remaining_bytes_[i + 1] + whole[order_[i]], kMaxSum);
    }
    for (const std::int64_t bytes : free_) total_free_ += std::max<std::int64_t>(bytes, 0);
  }

  ExactPacking Run() {
    ExactPacking result;
    if (PlaceFrom(0)) {
      result.placement = Build();
    } else {
      result.exhausted = nodes_ <= kMaxNodes;
    }
    return result;
  }

 private:
  static constexpr std::int64_t kMaxSum = std::int64_t{1} << 61;

  struct PlacedPiece {
    int table;
    std::int64_t cols;
    std::size_t rank;
  };

  bool PlaceFrom(std::size_t position) {
    if (position == order_.size()) return true;
    if (++nodes_ > kMaxNodes || remaining_bytes_[position] > total_free_) return false;
    return PlaceColumns(position, request_.tables[order_[position]].embedding_dim, false, 0);
  }

  // Distributes `cols` columns of the table over `rank` and the ranks after it; the tail is among
  // them unless `tail_placed`.
  bool PlaceColumns(std::size_t position, std::int64_t cols, bool tail_placed, std::size_t rank) {
    if (cols == 0) return PlaceFrom(position + 1);
    if (rank == free_.size() || ++nodes_ > kMaxNodes) return false;
    const std::int64_t tail =
        tail_placed ? 0 : request_.tables[order_[position]].embedding_dim % kColumnAlignment;
    const std::int64_t full = cols - tail;
    if (tail != 0) {
      for (std::int64_t taken = full; taken >= 0; taken -= kColumnAlignment) {
        if (TakeColumns(position, cols, taken + tail, true, rank)) return true;
      }
    }
    for (std::int64_t taken = full; taken > 0; taken -= kColumnAlignment) {
      if (TakeColumns(position, cols, taken, tail == 0, rank)) return true;
    }
    return PlaceColumns(position, cols, tail_placed, rank + 1);
  }

  bool TakeColumns(std::size_t position, std::int64_t cols, std::int64_t taken, bool tail_placed,
                   std::size_t rank) {
    const int table = static_cast<int>(order_[position]);
    const std::int64_t bytes = PieceBytes(request_, table, taken);
    if (bytes > free_[rank]) return false;
    free_[rank] -= bytes;
    total_free_ -= bytes;
    placed_.push_back({table, taken, rank});
    if (PlaceColumns(position, cols - taken, tail_placed, rank + 1)) return true;
    placed_.pop_back();
    free_[rank] += bytes;
    total_free_ += bytes;
    return false;
  }

  Placement Build() {
    // The piece with the tail ends its table.
    std::stable_sort(placed_.begin(), placed_.end(),
                     [](const PlacedPiece& a, const PlacedPiece& b) {
                       return (a.cols % kColumnAlignment != 0) < (b.cols % kColumnAlignment != 0);
                     });
    std::vector<std::int64_t> done(order_.size(), 0);
    Placement placement;
    for (const PlacedPiece& piece : placed_) {
      std::int64_t& offset = done[static_cast<std::size_t>(piece.table)];
      placement.pieces.push_back({piece.table, offset, piece.cols});
      placement.rank_of_piece.push_back(static_cast<int>(piece.rank));
      offset += piece.cols;
    }
    return placement;
  }

  const PlanRequest& request_;
  std::vector<std::int64_t> free_;
  std::int64_t total_free_ = 0;
  std::vector<std::size_t> order_;             // tables
  std::vector<std::int64_t> remaining_bytes_;  // of order_[i..], uncut
  std::vector<PlacedPiece> placed_;
  std::int64_t nodes_ = 0;
};

}  // namespace

ExactPacking PackColumnsExactly(const PlanRequest& request) {
  // Also keeps the sum of all capacities, each up to 2^50, within int64.
  if (request.tables.size() * request.topology.devices.size() > kMaxPackingDepth) return {};
  return ExactPacker(request).Run();
}

}  // namespace neuroshard
