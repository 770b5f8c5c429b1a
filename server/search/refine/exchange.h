// A neighbour of a solution: units that leave it and units that come instead. And the most
// promising ones of many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "server/search/refine/unit.h"

namespace neuroshard {

struct Exchange {
  double estimate_ms = 0;  // what it is thought to lead to; lower is better
  std::uint32_t order = 0;
  std::uint32_t leaving_begin = 0;
  std::uint32_t leaving_count = 0;
  std::uint32_t coming_begin = 0;
  std::uint32_t coming_count = 0;
};

// Keeps the `most` exchanges with the lowest estimates (ties: added first). Its memory is kept when
// it is cleared.
class ExchangeList {
 public:
  explicit ExchangeList(std::size_t most) : most_(most) {}

  void Clear();
  // Whether an exchange with this estimate would be kept: worth putting together.
  bool Wants(double estimate_ms) const { return estimate_ms < limit_ms(); }
  // Estimates from here on are not wanted.
  double limit_ms() const {
    return heap_.size() < most_ ? std::numeric_limits<double>::infinity()
                                : heap_.front().estimate_ms;
  }
  void Add(double estimate_ms, std::span<const int> leaving, std::span<const Unit> coming);

  bool empty() const { return heap_.empty(); }
  // In ascending order of estimates; the list must not be added to before the next Clear.
  std::span<const Exchange> Sorted();
  std::span<const int> leaving(const Exchange& e) const {
    return std::span(leaving_).subspan(e.leaving_begin, e.leaving_count);
  }
  std::span<const Unit> coming(const Exchange& e) const {
    return std::span(coming_).subspan(e.coming_begin, e.coming_count);
  }

 private:
  const std::size_t most_;
  std::uint32_t added_ = 0;
  std::vector<Exchange> heap_;  // the worst in front
  std::vector<int> leaving_;
  std::vector<Unit> coming_;
};

}  // namespace neuroshard
