#include <algorithm>
#include <cstddef>
#include <limits>

#include "common/base/positions.h"
#include "server/search/packing/packers.h"

namespace neuroshard {
namespace {

// Pairs of tables looked at while making room, in all: tens of milliseconds.
constexpr std::int64_t kRepairEffort = 20'000'000;

std::vector<std::int64_t> WholeBytes(const PlanRequest& request) {
  std::vector<std::int64_t> bytes;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    bytes.push_back(PieceBytes(request, static_cast<int>(t), request.tables[t].embedding_dim));
  }
  return bytes;
}

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

// Best-fit decreasing of uncut tables, with moves and swaps that make room.
class WholePacker {
 public:
  explicit WholePacker(const PlanRequest& request)
      : request_(request),
        bytes_(WholeBytes(request)),
        free_(AvailableBytes(request)),
        tables_on_(free_.size()) {}

  std::optional<Placement> Run() {
    for (const std::size_t table : Descending(bytes_)) {
      std::optional<std::size_t> rank = TightestFit(free_, bytes_[table]);
      if (!rank) rank = MakeRoom(bytes_[table]);
      if (!rank) return std::nullopt;
      Put(table, *rank);
    }
    Placement placement{WholeTables(request_), std::vector<int>(bytes_.size(), 0)};
    for (std::size_t r = 0; r < tables_on_.size(); ++r) {
      for (const std::size_t table : tables_on_[r]) {
        placement.rank_of_piece[table] = static_cast<int>(r);
      }
    }
    return placement;
  }

 private:
  static constexpr std::size_t kNothing = std::numeric_limits<std::size_t>::max();

  // `out` leaves rank `from` for rank `to`, and `back`, if any, comes the other way.
  struct Exchange {
    std::size_t from = 0, to = 0;
    std::size_t out = 0, back = kNothing;
    std::int64_t gained = 0;
  };

  void Put(std::size_t table, std::size_t rank) {
    tables_on_[rank].push_back(table);
    free_[rank] -= bytes_[table];
  }

  void Take(std::size_t table, std::size_t rank) {
    std::erase(tables_on_[rank], table);
    free_[rank] += bytes_[table];
  }

  // The rank that has `bytes` free after the best exchange, which is carried out.
  std::optional<std::size_t> MakeRoom(std::int64_t bytes) {
    std::optional<Exchange> best;
    std::int64_t best_left = 0;
    const auto consider = [&](const Exchange& exchange) {
      const std::int64_t left = free_[exchange.from] + exchange.gained - bytes;
      if (left < 0 || exchange.gained > free_[exchange.to]) return;
      if (!best || left < best_left) {
        best = exchange;
        best_left = left;
      }
    };
    for (std::size_t from = 0; from < free_.size(); ++from) {
      for (const std::size_t out : tables_on_[from]) {
        if (free_[from] + bytes_[out] < bytes) continue;
        for (std::size_t to = 0; to < free_.size(); ++to) {
          if (to == from) continue;
          effort_ += 1 + static_cast<std::int64_t>(tables_on_[to].size());
          if (effort_ > kRepairEffort) return std::nullopt;
          consider({from, to, out, kNothing, bytes_[out]});
          for (const std::size_t back : tables_on_[to]) {
            consider({from, to, out, back, bytes_[out] - bytes_[back]});
          }
        }
      }
    }
    if (!best) return std::nullopt;
    Take(best->out, best->from);
    if (best->back != kNothing) {
      Take(best->back, best->to);
      Put(best->back, best->from);
    }
    Put(best->out, best->to);
    return best->from;
  }

  const PlanRequest& request_;
  const std::vector<std::int64_t> bytes_;
  std::vector<std::int64_t> free_;
  std::vector<std::vector<std::size_t>> tables_on_;
  std::int64_t effort_ = 0;
};

// Most of the table's remaining columns that fit into `bytes`: all of them, or a multiple of the
// alignment.
std::int64_t ColumnsThatFit(const PlanRequest& request, int table, std::int64_t remaining,
                            std::int64_t bytes) {
  if (PieceBytes(request, table, remaining) <= bytes) return remaining;
  return AlignedColumnsIn(request, table, remaining - 1, bytes);
}

}  // namespace

std::optional<Placement> PackWholeTables(const PlanRequest& request) {
  return WholePacker(request).Run();
}

std::optional<Placement> PackCuttingColumns(const PlanRequest& request, CutOrder order) {
  const std::vector<std::int64_t> whole_bytes = WholeBytes(request);
  std::vector<std::int64_t> keys = whole_bytes;
  if (order == CutOrder::kLargestGranuleFirst) {
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

}  // namespace neuroshard
