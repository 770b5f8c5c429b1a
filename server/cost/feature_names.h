// Names of features in tables that read as a paragraph.
#pragma once

#include <array>
#include <string_view>

namespace neuroshard {

template <typename... Names>
constexpr std::array<std::string_view, sizeof...(Names)> NamesOf(const Names&... names) {
  return {names...};
}

}  // namespace neuroshard
