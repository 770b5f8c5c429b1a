// Lists in error messages: the first members, and how many more.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// "0, 1, 4", "row_wise, grid_shard", "'a', 'b' and 7 more". A list may have as many members as
// there are ranks; ten are enough to know it by.
template <typename T>
std::string ListText(const std::vector<T>& values, std::size_t max_listed = 10) {
  std::string list;
  for (std::size_t i = 0; i < values.size() && i < max_listed; ++i) {
    if (i > 0) list += ", ";
    if constexpr (std::is_enum_v<T>) {
      list += ToText(values[i]);
    } else if constexpr (std::is_arithmetic_v<T>) {
      list += std::to_string(values[i]);
    } else {
      list += fmt::format("'{}'", values[i]);
    }
  }
  if (values.size() > max_listed) list += fmt::format(" and {} more", values.size() - max_listed);
  return list;
}

}  // namespace neuroshard
