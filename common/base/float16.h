// IEEE half precision (fp16) and bfloat16 as their bits, to and from float, on the host. Narrowing
// rounds to the nearest, ties to even; NaN becomes 0x7fff.
#pragma once

#include <cstdint>
#include <cstring>

namespace neuroshard {

inline std::uint32_t BitsOfFloat(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float FloatOfBits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float Fp16ToFloat(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ff;
  if (exponent == 31) return FloatOfBits(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return FloatOfBits(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24F;  // exact
  return FloatOfBits(sign | BitsOfFloat(magnitude));
}
inline std::uint16_t FloatToFp16(float value) {
  const std::uint32_t bits = BitsOfFloat(value), magnitude = bits & 0x7fffffffu;
  const auto sign = static_cast<std::uint32_t>(bits >> 16 & 0x8000);
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7fff;  // NaN
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00;  // rounds beyond the largest, 65504
  } else if (magnitude >= 0x38800000u) {
    const std::uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    half = (rounded - 0x38000000u) >> 13;
  } else {
    // Adding 0.5 leaves exactly the bits of a subnormal half, and rounds them as the mode says.
    half = BitsOfFloat(FloatOfBits(magnitude) + 0.5F) - 0x3f000000u;
  }
  return static_cast<std::uint16_t>(sign | half);
}
inline float Bf16ToFloat(std::uint16_t bf16) {
  return FloatOfBits(static_cast<std::uint32_t>(bf16) << 16);
}
inline std::uint16_t FloatToBf16(float value) {
  const std::uint32_t bits = BitsOfFloat(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace neuroshard
