#include "server/search/packing/packers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/positions.h"

namespace neuroshard {
namespace {

std::vector<std::size_t> Descending(const std::vector<std::int64_t>& keys) {
  return PositionsDescending(keys.size(), [&](std::size_t i) { return keys[i]; });
}

std::optional<std::size_t> TightestFit(const std::vector<std::int64_t>& free, std::int64_t bytes) {
  std::optional<std::size_t> best;
  for (std::size_t r = 0; r < free.size(); ++r) {
    if (free[r] >= bytes && (!best || free[r] < free[*best])) best = r;
  }
  return best;
}

// Most of the table's remaining columns that fit into `bytes`: all of them, or a multiple of the
// alignment.
std::int64_t ColumnsThatFit(const PlanRequest& request, int table, std::int64_t remaining,
                            std::int64_t bytes) {
  if (PieceBytes(request, table, remaining) <= bytes) return remaining;
  return AlignedColumnsIn(request, table, remaining - 1, bytes);
}

constexpr std::int64_t kMaxNodes = 300'000;     // some 10 ms
constexpr std::size_t kMaxPackingDepth = 4096;  // of the recursion: tables x ranks

// Depth first over the tables in descending bytes; columns go to the ranks one after the other, in
// granules of the alignment. A ragged table's last granule (the tail) is smaller than the others,
// and which piece has it matters for the bytes.
class ExactPacker {
 public:
  explicit ExactPacker(const PlanRequest& request)
      : request_(request), free_(AvailableBytes(request)) {
    const std::vector<std::int64_t> whole = WholeBytes(request);
    order_ = Descending(whole);
    remaining_bytes_.resize(whole.size() + 1, 0);
    for (std::size_t i = whole.size(); i-- > 0;) {
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
    std::ranges::stable_sort(placed_, [](const PlacedPiece& a, const PlacedPiece& b) {
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

std::optional<Placement> PackBestFit(const PlanRequest& request, Cutting cutting,
                                     PackingOrder order) {
  const std::vector<std::int64_t> whole_bytes = WholeBytes(request);
  std::vector<std::int64_t> keys = whole_bytes;
  if (order == PackingOrder::kLargestGranuleFirst) {
    for (std::size_t t = 0; t < keys.size(); ++t) {
      const std::int64_t dim = request.tables[t].embedding_dim;
      keys[t] = PieceBytes(request, static_cast<int>(t), std::min(dim, kColumnAlignment));
    }
  }
  std::vector<std::int64_t> free = AvailableBytes(request);
  Placement placement;
  const auto put = [&](int table, std::int64_t offset, std::int64_t cols, std::size_t rank) {
    placement.pieces.push_back({table, offset, cols});
    placement.rank_of_piece.push_back(static_cast<int>(rank));
    free[rank] -= PieceBytes(request, table, cols);
  };
  for (const std::size_t t : Descending(keys)) {
    const int table = static_cast<int>(t);
    const std::int64_t dim = request.tables[t].embedding_dim;
    if (const auto rank = TightestFit(free, whole_bytes[t])) {
      put(table, 0, dim, *rank);
      continue;
    }
    if (cutting == Cutting::kWholeTables) return std::nullopt;
    std::int64_t done = 0;
    for (const std::size_t rank : Descending(free)) {
      const std::int64_t cols = ColumnsThatFit(request, table, dim - done, free[rank]);
      if (cols == 0) break;  // nor on the ranks that follow, which have less
      put(table, done, cols, rank);
      done += cols;
      if (done == dim) break;
    }
    if (done < dim) return std::nullopt;
  }
  return placement;
}

ExactPacking PackColumnsExactly(const PlanRequest& request) {
  // Also keeps the sum of all capacities, each up to 2^50, within int64.
  if (request.tables.size() * request.topology.devices.size() > kMaxPackingDepth) return {};
  return ExactPacker(request).Run();
}

}  // namespace neuroshard
