// Stored numbers and vectors of four of them: 16 bytes of fp32, 8 of fp16 and bf16. All arithmetic
// is fp32; what is stored is rounded to the nearest, ties to even.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/device_code.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace neuroshard::cuda {

inline constexpr int kVector = 4;

// Type of stored numbers.
enum class NumberType : std::int32_t { kFp32, kFp16, kBf16 };

NS_DEVICE_CODE int BytesOf(NumberType type) { return type == NumberType::kFp32 ? 4 : 2; }

// Four fp32 numbers.
struct alignas(16) Float4 {
  float x, y, z, w;
};
// Four fp16 or bf16 numbers, as bits.
struct alignas(8) Half4 {
  std::uint16_t x, y, z, w;
};

NS_DEVICE_CODE Float4 operator+(Float4 a, Float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
// sum + factor * value
NS_DEVICE_CODE Float4 MultiplyAdd(Float4 sum, float factor, Float4 value) {
  return {sum.x + factor * value.x, sum.y + factor * value.y, sum.z + factor * value.z,
          sum.w + factor * value.w};
}
NS_DEVICE_CODE Float4 operator*(float factor, Float4 value) {
  return {factor * value.x, factor * value.y, factor * value.z, factor * value.w};
}
NS_DEVICE_CODE float SumOfSquares(Float4 v) {
  return (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
}

inline std::uint32_t BitsOf(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float FloatOf(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// On the host, in integers.
inline float HostHalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ff;
  if (exponent == 31) return FloatOf(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return FloatOf(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24F;  // exact
  return FloatOf(sign | BitsOf(magnitude));
}
inline std::uint16_t HostFloatToHalf(float value) {
  const std::uint32_t bits = BitsOf(value), magnitude = bits & 0x7fffffffu;
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
    half = BitsOf(FloatOf(magnitude) + 0.5F) - 0x3f000000u;
  }
  return static_cast<std::uint16_t>(sign | half);
}
inline float HostBf16ToFloat(std::uint16_t bf16) {
  return FloatOf(static_cast<std::uint32_t>(bf16) << 16);
}
inline std::uint16_t HostFloatToBf16(float value) {
  const std::uint32_t bits = BitsOf(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

NS_DEVICE_CODE float HalfToFloat(std::uint16_t half) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(half));
#else
  return HostHalfToFloat(half);
#endif
}
NS_DEVICE_CODE std::uint16_t FloatToHalf(float value) {
#ifdef __CUDA_ARCH__
  return __half_as_ushort(__float2half_rn(value));
#else
  return HostFloatToHalf(value);
#endif
}
NS_DEVICE_CODE float Bf16ToFloat(std::uint16_t bf16) {
#ifdef __CUDA_ARCH__
  return __bfloat162float(__ushort_as_bfloat16(bf16));
#else
  return HostBf16ToFloat(bf16);
#endif
}
NS_DEVICE_CODE std::uint16_t FloatToBf16(float value) {
#ifdef __CUDA_ARCH__
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
  return HostFloatToBf16(value);
#endif
}

// A storage type as template argument: Raw is what is loaded at once, so that loads can be issued
// before the first of them is waited for.
struct Fp32 {
  using Element = float;
  using Raw = Float4;
  static NS_DEVICE_CODE Float4 Widen(Raw raw) { return raw; }
  static NS_DEVICE_CODE Raw Narrow(Float4 value) { return value; }
};
// IEEE binary16 in memory, fp32 in registers.
struct Fp16 {
  using Element = std::uint16_t;
  using Raw = Half4;
  static NS_DEVICE_CODE Float4 Widen(Raw raw) {
    return {HalfToFloat(raw.x), HalfToFloat(raw.y), HalfToFloat(raw.z), HalfToFloat(raw.w)};
  }
  static NS_DEVICE_CODE Raw Narrow(Float4 v) {
    return {FloatToHalf(v.x), FloatToHalf(v.y), FloatToHalf(v.z), FloatToHalf(v.w)};
  }
};
// bfloat16 in memory, fp32 in registers.
struct Bf16 {
  using Element = std::uint16_t;
  using Raw = Half4;
  static NS_DEVICE_CODE Float4 Widen(Raw raw) {
    return {Bf16ToFloat(raw.x), Bf16ToFloat(raw.y), Bf16ToFloat(raw.z), Bf16ToFloat(raw.w)};
  }
  static NS_DEVICE_CODE Raw Narrow(Float4 v) {
    return {FloatToBf16(v.x), FloatToBf16(v.y), FloatToBf16(v.z), FloatToBf16(v.w)};
  }
};

#ifdef __CUDA_ARCH__
// What one instruction loads or stores, for a value of so many bytes.
template <std::size_t kBytes>
struct Word;
template <>
struct Word<4> {
  using Type = unsigned;
};
template <>
struct Word<8> {
  using Type = uint2;
};
template <>
struct Word<16> {
  using Type = uint4;
};
template <typename T>
using WordOf = typename Word<sizeof(T)>::Type;

template <typename T>
NS_DEVICE_CODE T FromWord(WordOf<T> word) {
  T value;
  memcpy(&value, &word, sizeof value);
  return value;
}
#endif

// A load of what no thread of the launch writes.
template <typename T>
NS_DEVICE_CODE T LoadConstant(const T* address) {
#ifdef __CUDA_ARCH__
  return FromWord<T>(__ldg(reinterpret_cast<const WordOf<T>*>(address)));
#else
  return *address;
#endif
}

// A row's vector, which the thread that loads it may store later in the launch: past the first
// level's cache, which does not help there.
template <typename Raw>
NS_DEVICE_CODE Raw LoadRow(const Raw* address) {
#ifdef __CUDA_ARCH__
  return FromWord<Raw>(__ldcg(reinterpret_cast<const WordOf<Raw>*>(address)));
#else
  return *address;
#endif
}
template <typename Raw>
NS_DEVICE_CODE void StoreRow(Raw* address, Raw value) {
#ifdef __CUDA_ARCH__
  WordOf<Raw> word;
  memcpy(&word, &value, sizeof word);
  __stcg(reinterpret_cast<WordOf<Raw>*>(address), word);
#else
  *address = value;
#endif
}

}  // namespace neuroshard::cuda
