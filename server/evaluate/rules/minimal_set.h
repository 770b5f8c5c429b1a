// Minimal sets: a smallest list that still has a property, by leaving out what is not needed for
// it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "common/base/positions.h"

namespace neuroshard {

// Of 0 .. count - 1, given that shows(all of them): a list, ascending, that shows it, while it
// would not with any one of its members left out. Leaves out halves first, so that it asks about 2
// m log(count) times for m members. `shows` may depend on the list in any way.
inline std::vector<std::size_t> MinimalSet(
    std::size_t count, const std::function<bool(const std::vector<std::size_t>&)>& shows) {
  std::vector<std::size_t> kept = Positions(count);
  const auto leave_out = [&](std::size_t chunk) {
    bool any = false;
    for (std::size_t begin = 0; begin < kept.size();) {
      const auto first = kept.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = first + static_cast<std::ptrdiff_t>(std::min(chunk, kept.size() - begin));
      std::vector<std::size_t> without(kept.begin(), first);
      without.insert(without.end(), last, kept.end());
      if (shows(without)) {
        kept = std::move(without);
        any = true;
      } else {
        begin += chunk;
      }
    }
    return any;
  };
  for (std::size_t chunk = count / 2; chunk > 1; chunk /= 2) leave_out(chunk);
  while (leave_out(1)) {
  }
  return kept;
}

}  // namespace neuroshard
