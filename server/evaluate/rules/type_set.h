// Sets of sharding types and of kernels.
#pragma once

#include <compare>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// Values of an enumeration with words, one bit each.
template <typename E>
class WordSet {
 public:
  constexpr WordSet() = default;
  constexpr WordSet(std::initializer_list<E> values) {
    for (const E value : values) Add(value);
  }
  constexpr explicit WordSet(std::span<const E> values) {
    for (const E value : values) Add(value);
  }
  static constexpr WordSet All() {
    WordSet all;
    for (const auto& word : kWords<E>) all.Add(word.value);
    return all;
  }

  constexpr void Add(E value) { bits_ |= Bit(value); }
  constexpr void Remove(E value) { bits_ &= ~Bit(value); }
  constexpr bool contains(E value) const { return (bits_ & Bit(value)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  // In the order of their words.
  std::vector<E> values() const {
    std::vector<E> values;
    for (const auto& word : kWords<E>) {
      if (contains(word.value)) values.push_back(word.value);
    }
    return values;
  }
  constexpr WordSet operator&(WordSet other) const {
    other.bits_ &= bits_;
    return other;
  }
  // clang-tidy 14 sees a null pointer in it.
  constexpr auto operator<=>(const WordSet&) const = default;  // NOLINT(modernize-use-nullptr)

 private:
  static constexpr std::uint32_t Bit(E value) {
    return std::uint32_t{1} << static_cast<unsigned>(value);
  }

  std::uint32_t bits_ = 0;
};
using TypeSet = WordSet<ShardingType>;
using KernelSet = WordSet<ComputeKernel>;

}  // namespace neuroshard
