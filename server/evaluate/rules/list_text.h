// Lists in error messages: the first members, and how many more.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// "0, 1, 4", "row_wise, grid_shard", "'a', 'b' and 7 more". A list may have as many members as
// there are ranks; ten are enough to know it by.
// `text_of` gives what is written of a value; it is asked for those that are listed alone.
template <typename T, typename TextOf = std::identity>
std::string ListText(const std::vector<T>& values, std::size_t max_listed = 10,
                     const TextOf& text_of = {}) {
  using Text = std::decay_t<std::invoke_result_t<TextOf, const T&>>;
  std::string list;
  for (std::size_t i = 0; i < values.size() && i < max_listed; ++i) {
    if (i > 0) list += ", ";
    if constexpr (std::is_enum_v<Text>) {
      list += ToText(text_of(values[i]));
    } else if constexpr (std::is_arithmetic_v<Text>) {
      list += std::to_string(text_of(values[i]));
    } else {
      list += fmt::format("'{}'", text_of(values[i]));
    }
  }
  if (values.size() > max_listed) list += fmt::format(" and {} more", values.size() - max_listed);
  return list;
}

}  // namespace neuroshard
