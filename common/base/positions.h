// Positions of a sequence: its element at one, their order by a key, and lists without repeats.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
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

// Ascending, each value once.
template <typename T>
void SortUnique(std::vector<T>& values) {
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace neuroshard
