// Stored numbers and vectors of four of them: 16 bytes of fp32, 8 of fp16 and bf16. All arithmetic
// is fp32; what is stored is rounded to the nearest, ties to even.
#pragma once

#include <cstdint>

#include "common/base/float16.h"
#include "kernels/indices/counter_random.h"

// Kernel bodies are read by two compilers: nvcc for devices, and the host's for tests, which run
// every block and thread of a launch in a loop.
#ifdef __CUDA_ARCH__
#define NS_UNROLL _Pragma("unroll")
#define NS_NO_UNROLL _Pragma("unroll 1")
#else
#define NS_UNROLL
#define NS_NO_UNROLL
#endif

namespace neuroshard::cuda {

inline constexpr int kThreads = 256;  // of every block
inline constexpr int kWarp = 32;      // that can exchange values

}  // namespace neuroshard::cuda

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
// Four fp16 or bf16 numbers, as bits, the first in the lower half of xy. Whole registers: with a
// member a number nvcc unpacks each load before it issues the next (tests/machine_code).
struct alignas(8) Half4 {
  std::uint32_t xy, zw;
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

// The two numbers of a register.
NS_DEVICE_CODE std::uint16_t Lower(std::uint32_t pair) {
  return static_cast<std::uint16_t>(pair & 0xffffU);
}
NS_DEVICE_CODE std::uint16_t Upper(std::uint32_t pair) {
  return static_cast<std::uint16_t>(pair >> 16);
}
NS_DEVICE_CODE std::uint32_t Pair(std::uint16_t lower, std::uint16_t upper) {
  return lower | static_cast<std::uint32_t>(upper) << 16;
}

NS_DEVICE_CODE float HalfToFloat(std::uint16_t half) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(half));
#else
  return Fp16ToFloat(half);
#endif
}
NS_DEVICE_CODE std::uint16_t FloatToHalf(float value) {
#ifdef __CUDA_ARCH__
  return __half_as_ushort(__float2half_rn(value));
#else
  return FloatToFp16(value);
#endif
}
NS_DEVICE_CODE float Bf16ToFloat(std::uint16_t bf16) {
#ifdef __CUDA_ARCH__
  return __bfloat162float(__nv_bfloat16_raw{bf16});
#else
  return neuroshard::Bf16ToFloat(bf16);
#endif
}
NS_DEVICE_CODE std::uint16_t FloatToBf16(float value) {
#ifdef __CUDA_ARCH__
  return static_cast<__nv_bfloat16_raw>(__float2bfloat16_rn(value)).x;
#else
  return neuroshard::FloatToBf16(value);
#endif
}

// A storage type as template argument: Raw is what is loaded at once, so that loads can be issued
// before the first of them is waited for.
struct Fp32 {
  using Raw = Float4;
  static NS_DEVICE_CODE Float4 Widen(Raw raw) { return raw; }
  static NS_DEVICE_CODE Raw Narrow(Float4 value) { return value; }
};
// IEEE binary16 in memory, fp32 in registers.
struct Fp16 {
  using Raw = Half4;
  static NS_DEVICE_CODE Float4 Widen(Raw raw) {
    return {HalfToFloat(Lower(raw.xy)), HalfToFloat(Upper(raw.xy)), HalfToFloat(Lower(raw.zw)),
            HalfToFloat(Upper(raw.zw))};
  }
  static NS_DEVICE_CODE Raw Narrow(Float4 v) {
    return {Pair(FloatToHalf(v.x), FloatToHalf(v.y)), Pair(FloatToHalf(v.z), FloatToHalf(v.w))};
  }
};
// bfloat16 in memory, fp32 in registers.
struct Bf16 {
  using Raw = Half4;
  static NS_DEVICE_CODE Float4 Widen(Raw raw) {
    return {Bf16ToFloat(Lower(raw.xy)), Bf16ToFloat(Upper(raw.xy)), Bf16ToFloat(Lower(raw.zw)),
            Bf16ToFloat(Upper(raw.zw))};
  }
  static NS_DEVICE_CODE Raw Narrow(Float4 v) {
    return {Pair(FloatToBf16(v.x), FloatToBf16(v.y)), Pair(FloatToBf16(v.z), FloatToBf16(v.w))};
  }
};

// Calls `visit` with an Fp32, Fp16 or Bf16, whichever stands for `type`.
template <typename Visit>
NS_DEVICE_CODE void WithType(NumberType type, const Visit& visit) {
  switch (type) {
    case NumberType::kFp32:
      return visit(Fp32());
    case NumberType::kFp16:
      return visit(Fp16());
    case NumberType::kBf16:
      return visit(Bf16());
  }
}

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
