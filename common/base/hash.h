// Hashes that are the same everywhere: the finaliser of SplitMix64 (Steele, Lea, Flood 2014;
// java.util.SplittableRandom), and FNV-1a for texts.
#pragma once

#include <cstdint>
#include <string_view>

namespace neuroshard {

// Odd, with bits in no pattern: multiples of it spread over all 64 bits (2^64 / golden ratio).
inline constexpr std::uint64_t kGoldenGamma = 0x9E3779B97F4A7C15U;

// A bijection in which every bit of `x` changes about half of the bits of the result.
constexpr std::uint64_t MixBits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

inline constexpr std::uint64_t kFnvOffset = 0xCBF29CE484222325U;

// Neighbouring texts have similar high bits.
constexpr std::uint64_t Fnv1a(std::string_view text, std::uint64_t hash = kFnvOffset) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

}  // namespace neuroshard
