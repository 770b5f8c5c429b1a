#include "server/networks/dense_layer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

// Vectors of unknown length (SVE, RVV) cannot be members of an array, and NEON serves those
// machines.
#include "hwy/detect_compiler_arch.h"
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/networks/dense_layer.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace neuroshard {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

// Rows are padded to so many floats, and so many sums of a narrow layer are formed side by side,
// whatever the vectors hold.
constexpr std::int64_t kPadding = 16;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
constexpr int kPerPadding = static_cast<int>(kPadding) / kLanes;
// Columns of a tile and its rows: with so many sums under way the multiply-adds never wait, and
// all are in registers.
constexpr int kTileVectors = HWY_MAX_BYTES >= 64 ? 2 : kPerPadding;
constexpr int kTileRows = 4;

// a * b + c, rounded once.
HWY_INLINE V MultiplyAdd(V a, V b, V c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  const D d;
  HWY_ALIGN float x[kLanes];
  HWY_ALIGN float y[kLanes];
  HWY_ALIGN float z[kLanes];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (int i = 0; i < kLanes; ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, z);
#endif
}

// kRows rows and kVectors vectors of columns of y. `weight` and `bias` begin at the first column.
template <int kRows, int kVectors>
HWY_INLINE void MultiplyTile(std::int64_t in, std::int64_t stride, bool relu, const float* weight,
                             const float* bias, const float* x, std::int64_t x_stride, float* y) {
  const D d;
  V sums[kRows][kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const V start = hn::LoadU(d, bias + v * kLanes);
    for (int r = 0; r < kRows; ++r) sums[r][v] = start;
  }
  for (std::int64_t i = 0; i < in; ++i) {
    V w[kVectors];
    for (int v = 0; v < kVectors; ++v) w[v] = hn::LoadU(d, weight + i * stride + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const V value = hn::Set(d, x[r * x_stride + i]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = MultiplyAdd(value, w[v], sums[r][v]);
    }
  }
  const V zero = hn::Zero(d);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      V value = sums[r][v];
      // Not Max: a NaN stays one.
      if (relu) value = hn::IfThenElse(hn::Lt(value, zero), zero, value);
      hn::StoreU(value, d, y + r * stride + v * kLanes);
    }
  }
}

template <int kRows>
HWY_INLINE void MultiplyRows(std::int64_t in, std::int64_t stride, bool relu, const float* weight,
                             const float* bias, const float* x, std::int64_t x_stride, float* y) {
  std::int64_t column = 0;
  constexpr std::int64_t kTile = std::int64_t{kTileVectors} * kLanes;
  for (; column + kTile <= stride; column += kTile) {
    MultiplyTile<kRows, kTileVectors>(in, stride, relu, weight + column, bias + column, x, x_stride,
                                      y + column);
  }
  for (; column < stride; column += kPadding) {
    MultiplyTile<kRows, kPerPadding>(in, stride, relu, weight + column, bias + column, x, x_stride,
                                     y + column);
  }
}

void MultiplyHere(std::int64_t n, std::int64_t in, std::int64_t stride, bool relu,
                  const float* weight, const float* bias, const float* x, std::int64_t x_stride,
                  float* y) {
  std::int64_t row = 0;
  for (; row + kTileRows <= n; row += kTileRows) {
    MultiplyRows<kTileRows>(in, stride, relu, weight, bias, x + row * x_stride, x_stride,
                            y + row * stride);
  }
  for (; row < n; ++row) {
    MultiplyRows<1>(in, stride, relu, weight, bias, x + row * x_stride, x_stride, y + row * stride);
  }
}

// Dot products, for so few outputs that a vector of them would be nearly empty.
void MultiplyNarrowHere(std::int64_t n, std::int64_t padded_in, std::int64_t out, bool relu,
                        const float* weight, const float* bias, const float* x,
                        std::int64_t x_stride, float* y) {
  const D d;
  for (std::int64_t row = 0; row < n; ++row) {
    for (std::int64_t o = 0; o < out; ++o) {
      V sums[kPerPadding];
      for (V& sum : sums) sum = hn::Zero(d);
      for (std::int64_t i = 0; i < padded_in; i += kPadding) {
        for (int v = 0; v < kPerPadding; ++v) {
          sums[v] = MultiplyAdd(hn::LoadU(d, x + row * x_stride + i + v * kLanes),
                                hn::LoadU(d, weight + o * padded_in + i + v * kLanes), sums[v]);
        }
      }
      HWY_ALIGN float lanes[kPadding];
      for (int v = 0; v < kPerPadding; ++v) hn::Store(sums[v], d, lanes + v * kLanes);
      for (int half = static_cast<int>(kPadding) / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
      }
      const float value = bias[o] + lanes[0];
      y[row * out + o] = relu && value < 0 ? 0 : value;
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace neuroshard
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace neuroshard {
namespace {

HWY_EXPORT(MultiplyHere);
HWY_EXPORT(MultiplyNarrowHere);

constexpr std::int64_t kPadding = 16;
// Outputs up to which dot products are faster than a vector of outputs.
constexpr std::int64_t kMaxNarrow = 4;

std::int64_t Padded(std::int64_t count) { return (count + kPadding - 1) / kPadding * kPadding; }

}  // namespace

DenseLayer::DenseLayer(std::int64_t in, std::int64_t out, std::span<const float> weight,
                       std::span<const float> bias, DenseActivation activation, bool padded_input)
    : in_(in),
      out_(out),
      narrow_(padded_input && out <= kMaxNarrow),
      relu_(activation == DenseActivation::kRelu) {
  stride_ = narrow_ ? out : Padded(out);
  bias_.assign(static_cast<std::size_t>(stride_), 0.0F);
  std::copy(bias.begin(), bias.end(), bias_.begin());
  weight_.assign(static_cast<std::size_t>(narrow_ ? out * Padded(in) : in * stride_), 0.0F);
  for (std::int64_t o = 0; o < out; ++o) {
    for (std::int64_t i = 0; i < in; ++i) {
      const std::int64_t at = narrow_ ? o * Padded(in) + i : i * stride_ + o;
      weight_[static_cast<std::size_t>(at)] = weight[static_cast<std::size_t>(o * in + i)];
    }
  }
}

void DenseLayer::Run(std::int64_t n, const float* x, std::int64_t x_stride, float* y) const {
  if (narrow_) {
    HWY_DYNAMIC_DISPATCH(MultiplyNarrowHere)
    (n, Padded(in_), out_, relu_, weight_.data(), bias_.data(), x, x_stride, y);
  } else {
    HWY_DYNAMIC_DISPATCH(MultiplyHere)
    (n, in_, stride_, relu_, weight_.data(), bias_.data(), x, x_stride, y);
  }
}

std::vector<std::int64_t> DenseLayerInstructionSets() {
  const std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  return {targets.begin(), targets.end()};
}

}  // namespace neuroshard
#endif  // HWY_ONCE
