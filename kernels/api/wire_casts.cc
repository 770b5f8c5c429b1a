#include "kernels/api/wire_casts.h"

#include <cassert>
#include <cstddef>

#include "common/base/float16.h"

// Casts go by vectors with AVX2, whose CPUs convert fp16, and AVX-512; on other CPUs one value
// after the other.
#include "hwy/detect_compiler_arch.h"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/api/wire_casts.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace neuroshard {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Both step over whole vectors and return how many values they did.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
using Floats = hn::ScalableTag<float>;
using Halves = hn::Rebind<hwy::float16_t, Floats>;
using Words = hn::Rebind<std::uint16_t, Floats>;
using Bits = hn::RebindToUnsigned<Floats>;
using SignedBits = hn::RebindToSigned<Floats>;

// FloatToBf16 of each lane.
HWY_INLINE hn::Vec<Bits> Bf16Bits(hn::Vec<Floats> values) {
  const Bits d;
  const auto bits = hn::BitCast(d, values);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fff))));
  const auto is_nan = hn::RebindMask(d, hn::IsNaN(values));
  return hn::IfThenElse(is_nan, hn::Set(d, 0x7fff), rounded);
}

template <bool kFp16>
std::size_t ToWire(std::span<const float> values, std::uint16_t* wire) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= values.size(); i += lanes) {
    const auto value = hn::LoadU(d, &values[i]);
    if constexpr (kFp16) {
      const auto half = hn::DemoteTo(Halves(), value);
      hn::StoreU(hn::BitCast(Words(), half), Words(), wire + i);
    } else {
      const auto bits = hn::BitCast(SignedBits(), Bf16Bits(value));
      hn::StoreU(hn::DemoteTo(Words(), bits), Words(), wire + i);
    }
  }
  return i;
}

template <bool kFp16>
std::size_t FromWire(std::span<const std::uint16_t> wire, float* values) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= wire.size(); i += lanes) {
    const auto words = hn::LoadU(Words(), &wire[i]);
    if constexpr (kFp16) {
      hn::StoreU(hn::PromoteTo(d, hn::BitCast(Halves(), words)), d, values + i);
    } else {
      const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(Bits(), words));
      hn::StoreU(hn::BitCast(d, bits), d, values + i);
    }
  }
  return i;
}
#else
template <bool kFp16>
std::size_t ToWire(std::span<const float>, std::uint16_t*) {
  return 0;
}
template <bool kFp16>
std::size_t FromWire(std::span<const std::uint16_t>, float*) {
  return 0;
}
#endif

void CastToWireHere(DataType dtype, std::span<const float> values, std::uint16_t* wire) {
  const bool fp16 = dtype == DataType::kFp16;
  for (std::size_t i = fp16 ? ToWire<true>(values, wire) : ToWire<false>(values, wire);
       i < values.size(); ++i) {
    wire[i] = fp16 ? FloatToFp16(values[i]) : FloatToBf16(values[i]);
  }
}

void CastFromWireHere(DataType dtype, std::span<const std::uint16_t> wire, float* values) {
  const bool fp16 = dtype == DataType::kFp16;
  for (std::size_t i = fp16 ? FromWire<true>(wire, values) : FromWire<false>(wire, values);
       i < wire.size(); ++i) {
    values[i] = fp16 ? Fp16ToFloat(wire[i]) : Bf16ToFloat(wire[i]);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace neuroshard
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace neuroshard {
namespace {
HWY_EXPORT(CastToWireHere);
HWY_EXPORT(CastFromWireHere);
}  // namespace

void CastToWire(DataType dtype, std::span<const float> values, std::span<std::uint16_t> wire) {
  assert(IsWireCast(dtype) && wire.size() == values.size());
  HWY_DYNAMIC_DISPATCH(CastToWireHere)(dtype, values, wire.data());
}

void CastFromWire(DataType dtype, std::span<const std::uint16_t> wire, std::span<float> values) {
  assert(IsWireCast(dtype) && wire.size() == values.size());
  HWY_DYNAMIC_DISPATCH(CastFromWireHere)(dtype, wire, values.data());
}

}  // namespace neuroshard
#endif  // HWY_ONCE
