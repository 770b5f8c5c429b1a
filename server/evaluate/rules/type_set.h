// A set of sharding types.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// One bit a sharding type.
class TypeSet {
 public:
  constexpr TypeSet() = default;
  constexpr TypeSet(std::initializer_list<ShardingType> types) {
    for (const ShardingType type : types) Add(type);
  }
  constexpr explicit TypeSet(std::span<const ShardingType> types) {
    for (const ShardingType type : types) Add(type);
  }
  static constexpr TypeSet All() {
    TypeSet all;
    for (const auto& word : kWords<ShardingType>) all.Add(word.value);
    return all;
  }

  constexpr void Add(ShardingType type) { bits_ |= Bit(type); }
  constexpr void Remove(ShardingType type) { bits_ &= ~Bit(type); }
  constexpr bool contains(ShardingType type) const { return (bits_ & Bit(type)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr TypeSet operator&(TypeSet other) const {
    other.bits_ &= bits_;
    return other;
  }
  constexpr bool operator==(const TypeSet&) const = default;

 private:
  static constexpr std::uint32_t Bit(ShardingType type) {
    return std::uint32_t{1} << static_cast<unsigned>(type);
  }

  std::uint32_t bits_ = 0;
};

}  // namespace neuroshard
