// Lists: the element at a position, positions in the order of a key, values of other values, and
// no value twice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace neuroshard {

// values[position], where the position is of any integer type or an enumeration.
template <typename Values, typename Position>
constexpr decltype(auto) At(Values&& values, Position position) {
  return values[static_cast<std::size_t>(position)];
}

// 0 .. count - 1.
template <typename Index = std::size_t>
std::vector<Index> Positions(std::size_t count) {
  std::vector<Index> positions(count);
  std::iota(positions.begin(), positions.end(), Index{0});
  return positions;
}

// 0 .. count - 1, those with the largest key(position) first, of equal ones the lower. `key` is
// called O(count log count) times.
template <typename Index = std::size_t, typename Key>
std::vector<Index> PositionsDescending(std::size_t count, const Key& key) {
  std::vector<Index> positions = Positions<Index>(count);
  std::ranges::stable_sort(positions, [&](Index a, Index b) { return key(a) > key(b); });
  return positions;
}

// What `function`, or a member, gives for each value, in their order; as T where one is named.
template <typename T = void, typename Values, typename Function>
auto Mapped(const Values& values, const Function& function) {
  using Result = decltype(std::invoke(function, *values.begin()));
  using Given = std::decay_t<Result>;
  static_assert(!std::is_same_v<T, std::string_view> || !std::is_same_v<Result, std::string>,
                "views of texts that are gone");
  std::vector<std::conditional_t<std::is_void_v<T>, Given, T>> mapped;
  if constexpr (requires { values.size(); }) {
    mapped.reserve(static_cast<std::size_t>(values.size()));
  }
  for (const auto& value : values) mapped.push_back(std::invoke(function, value));
  return mapped;
}

// Ascending, each value once.
template <typename T>
void SortUnique(std::vector<T>& values) {
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace neuroshard
