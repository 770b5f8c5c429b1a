#include "kernels/cpu/embedding_kernels.h"

#include <algorithm>
#include <cmath>

// Not compiled: SSSE3 machines without SSE4 do not run training jobs; vectors of unknown length
// (SVE, RVV) cannot be members of an array, and NEON serves those machines.
#include "hwy/detect_compiler_arch.h"
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding_kernels.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/memory_arena.h"

HWY_BEFORE_NAMESPACE();
namespace neuroshard {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
// D is the vector type: all lanes, or 8 or 4 for narrow tables, because a wide masked load of a
// narrow row straddles cache lines and costs twice as much.
using Full = hn::ScalableTag<float>;

constexpr std::int64_t kCacheLineFloats = 16;

// Columns [first, first + kFull vectors + tail_cols) of a row, small enough to be summed up in
// registers.
struct ColumnBlock {
  std::int64_t first = 0;
  std::int64_t tail_cols = 0;
};

// How many keys ahead rows are prefetched: about 64 cache lines in flight cover the latency of
// memory at its bandwidth, and more than that would be evicted from L1 before it is used.
template <class D, int kVectors>
constexpr std::int64_t PrefetchDistance() {
  const std::int64_t lines =
      (kVectors * static_cast<std::int64_t>(hn::MaxLanes(D()) * 4) + 63) / 64;
  return std::clamp<std::int64_t>(64 / std::max<std::int64_t>(lines, 1), 8, 32);
}

// The last columns of a row; zeros elsewhere. Highway 1.0.3's MaskedLoad needs aligned rows where
// the instruction set has no masked load; where it has one, the cache line behind the row is not
// touched.
template <class D>
HWY_INLINE hn::Vec<D> LoadTail(D d, hn::Mask<D> mask, const float* row) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  return hn::MaskedLoad(mask, d, row);
#else
  return hn::IfThenElseZero(mask, hn::LoadU(d, row));
#endif
}

template <class D, int kFull, bool kTail>
HWY_INLINE void PrefetchBlock(const float* row, const ColumnBlock& block) {
  const auto full = kFull * static_cast<std::int64_t>(hn::Lanes(D()));
  for (std::int64_t i = 0; i < full; i += kCacheLineFloats) hwy::Prefetch(row + block.first + i);
  if constexpr (kTail) hwy::Prefetch(row + block.first + full + block.tail_cols - 1);
}

template <class D, int kFull, bool kTail, bool kWeighted>
HWY_INLINE void SumKeys(const RowList& list, const ColumnBlock& block, std::int64_t begin,
                        std::int64_t end, hn::Vec<D>* sum) {
  // Sums of millions of floats lose digits unless they are formed in parts.
  constexpr std::int64_t kPart = 512;
  constexpr int kVectors = kFull + (kTail ? 1 : 0);
  constexpr std::int64_t kAhead = PrefetchDistance<D, kVectors>();
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto tail_mask = hn::FirstN(d, static_cast<std::size_t>(block.tail_cols));
  for (int v = 0; v < kVectors; ++v) sum[v] = hn::Zero(d);
  for (std::int64_t part = begin; part < end; part += kPart) {
    hn::Vec<D> part_sum[kVectors];
    for (int v = 0; v < kVectors; ++v) part_sum[v] = hn::Zero(d);
    const std::int64_t part_end = std::min(end, part + kPart);
    for (std::int64_t i = part; i < part_end; ++i) {
      if (HWY_LIKELY(i + kAhead < list.num_keys)) {
        const auto ahead = static_cast<std::int64_t>(list.keys[i + kAhead] & list.key_mask);
        PrefetchBlock<D, kFull, kTail>(list.rows + ahead * list.stride, block);
      }
      const auto index = static_cast<std::int64_t>(list.keys[i] & list.key_mask);
      const float* row = list.rows + index * list.stride + block.first;
      [[maybe_unused]] hn::Vec<D> weight;
      if constexpr (kWeighted) weight = hn::Set(d, list.key_weights[i]);
      HWY_UNROLL(9)
      for (int v = 0; v < kVectors; ++v) {
        const hn::Vec<D> value =
            v < kFull ? hn::LoadU(d, row + v * lanes) : LoadTail(d, tail_mask, row + v * lanes);
        if constexpr (kWeighted) {
          part_sum[v] = hn::MulAdd(weight, value, part_sum[v]);
        } else {
          part_sum[v] = hn::Add(part_sum[v], value);
        }
      }
    }
    for (int v = 0; v < kVectors; ++v) sum[v] = hn::Add(sum[v], part_sum[v]);
  }
}

template <class D, int kFull, bool kTail, bool kWeighted>
struct Pool {
  static void Run(const PoolArguments& arguments, const ColumnBlock& block) {
    constexpr int kVectors = kFull + (kTail ? 1 : 0);
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto tail_mask = hn::FirstN(d, static_cast<std::size_t>(block.tail_cols));
    for (std::int64_t b = 0; b < arguments.batch_size; ++b) {
      const std::int64_t begin = arguments.offsets[b], end = arguments.offsets[b + 1];
      hn::Vec<D> sum[kVectors];
      SumKeys<D, kFull, kTail, kWeighted>(arguments.list, block, begin, end, sum);
      if (arguments.mean && end - begin > 1) {
        const hn::Vec<D> scale = hn::Set(d, 1.0F / static_cast<float>(end - begin));
        for (int v = 0; v < kVectors; ++v) sum[v] = hn::Mul(sum[v], scale);
      }
      float* output = arguments.output + b * arguments.output_stride + block.first;
      HWY_UNROLL(9)
      for (int v = 0; v < kVectors; ++v) {
        if (v < kFull) {
          hn::StoreU(sum[v], d, output + v * lanes);
        } else {
          hn::BlendedStore(sum[v], tail_mask, d, output + v * lanes);
        }
      }
    }
  }
};

// Pooling without offsets has a loop of its own, as Pool takes up to 1.6 times as long for bags of
// one row.
template <class D, int kFull, bool kTail, bool kWeighted>
struct Gather {
  static void Run(const PoolArguments& arguments, const ColumnBlock& block) {
    constexpr int kVectors = kFull + (kTail ? 1 : 0);
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto tail_mask = hn::FirstN(d, static_cast<std::size_t>(block.tail_cols));
    for (std::int64_t i = 0; i < arguments.list.num_keys; ++i) {
      hn::Vec<D> row[kVectors];
      SumKeys<D, kFull, kTail, kWeighted>(arguments.list, block, i, i + 1, row);
      float* output = arguments.output + i * arguments.output_stride + block.first;
      HWY_UNROLL(9)
      for (int v = 0; v < kVectors; ++v) {
        if (v < kFull) {
          hn::StoreU(row[v], d, output + v * lanes);
        } else {
          hn::BlendedStore(row[v], tail_mask, d, output + v * lanes);
        }
      }
    }
  }
};

// What a pass over the distinct rows does with a row's gradient.
enum class Pass {
  kSgd,             // w -= learning_rate * g
  kRowwiseAdagrad,  // the whole update, possible when one block holds the whole row
  kAddSquares,      // scratch[run] += sum of g^2
  kApplySteps,      // w -= scratch[run] * g
};

struct UpdatePass {
  const UpdateArguments& arguments;
  Pass pass;
};

// The row of the optimizer's state that belongs to a row of the weights.
HWY_INLINE std::int64_t StateRow(const UpdateArguments& arguments, std::int64_t row) {
  if (row >= arguments.num_slots) return row - arguments.num_slots;
  return arguments.slot_rows[row];
}

// Adds the mean of the squares to the row's state and returns what the gradient is multiplied by.
HWY_INLINE float AdagradStep(const UpdateArguments& arguments, std::int64_t row,
                             float sum_of_squares) {
  float& state = arguments.momentum1[StateRow(arguments, row)];
  state += sum_of_squares / static_cast<float>(arguments.cols);
  return arguments.learning_rate / (std::sqrt(state) + arguments.epsilon);
}

HWY_INLINE std::int64_t RunEnd(const UpdateArguments& arguments, std::int64_t begin) {
  const std::uint64_t row = arguments.gradients.keys[begin] >> arguments.row_shift;
  std::int64_t end = begin + 1;
  while (end < arguments.gradients.num_keys &&
         arguments.gradients.keys[end] >> arguments.row_shift == row) {
    ++end;
  }
  return end;
}

template <class D, int kFull, bool kTail, bool kWeighted>
struct Update {
  static void Run(const UpdatePass& update, const ColumnBlock& block) {
    constexpr int kVectors = kFull + (kTail ? 1 : 0);
    constexpr std::int64_t kAhead = PrefetchDistance<D, kVectors>();
    const UpdateArguments& arguments = update.arguments;
    const RowList& list = arguments.gradients;
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto tail_mask = hn::FirstN(d, static_cast<std::size_t>(block.tail_cols));
    std::int64_t run = 0;
    for (std::int64_t begin = 0, end; begin < list.num_keys; begin = end, ++run) {
      end = RunEnd(arguments, begin);
      if (HWY_LIKELY(end + kAhead < list.num_keys)) {
        const auto ahead =
            static_cast<std::int64_t>(list.keys[end + kAhead] >> arguments.row_shift);
        PrefetchBlock<D, kFull, kTail>(arguments.weights + ahead * arguments.cols, block);
        if (update.pass == Pass::kRowwiseAdagrad) {
          hwy::Prefetch(arguments.momentum1 + StateRow(arguments, ahead));
        }
      }
      hn::Vec<D> gradient[kVectors];
      SumKeys<D, kFull, kTail, kWeighted>(list, block, begin, end, gradient);
      const auto row = static_cast<std::int64_t>(list.keys[begin] >> arguments.row_shift);
      float step = arguments.learning_rate;
      if (update.pass == Pass::kApplySteps) {
        step = arguments.scratch[run];
      } else if (update.pass != Pass::kSgd) {
        hn::Vec<D> squares = hn::Zero(d);
        for (int v = 0; v < kVectors; ++v) squares = hn::MulAdd(gradient[v], gradient[v], squares);
        const float sum_of_squares = hn::GetLane(hn::SumOfLanes(d, squares));
        if (update.pass == Pass::kAddSquares) {
          arguments.scratch[run] += sum_of_squares;
          continue;
        }
        step = AdagradStep(arguments, row, sum_of_squares);
      }
      const hn::Vec<D> negative_step = hn::Set(d, -step);
      float* weights = arguments.weights + row * arguments.cols + block.first;
      HWY_UNROLL(9)
      for (int v = 0; v < kVectors; ++v) {
        if (v < kFull) {
          const hn::Vec<D> old = hn::LoadU(d, weights + v * lanes);
          hn::StoreU(hn::MulAdd(negative_step, gradient[v], old), d, weights + v * lanes);
        } else {
          const hn::Vec<D> old = LoadTail(d, tail_mask, weights + v * lanes);
          hn::BlendedStore(hn::MulAdd(negative_step, gradient[v], old), tail_mask, d,
                           weights + v * lanes);
        }
      }
    }
  }
};

// How many of the whole vectors left in a row the next block takes. Powers of two keep the number
// of compiled shapes small.
HWY_INLINE std::int64_t BlockVectors(std::int64_t vectors) {
  return vectors >= 8 ? 8 : vectors >= 4 ? 4 : vectors >= 2 ? 2 : vectors;
}

// A table that fits a vector type narrower than Full.
template <class D, template <class, int, bool, bool> class Body, bool kWeighted, class Arguments>
void RunNarrow(std::int64_t cols, const Arguments& arguments) {
  if (cols == static_cast<std::int64_t>(hn::Lanes(D()))) {
    Body<D, 1, false, kWeighted>::Run(arguments, ColumnBlock{0, 0});
  } else {
    Body<D, 0, true, kWeighted>::Run(arguments, ColumnBlock{0, cols});
  }
}

// Runs the shape of `full` vectors, at most kFull, and what is left of the columns.
template <template <class, int, bool, bool> class Body, bool kWeighted, int kFull = 8,
          class Arguments>
HWY_INLINE void RunBlock(std::int64_t full, const Arguments& arguments, const ColumnBlock& block) {
  if constexpr (kFull > 0) {
    if (full < kFull) return RunBlock<Body, kWeighted, kFull / 2>(full, arguments, block);
    if (block.tail_cols == 0) return Body<Full, kFull, false, kWeighted>::Run(arguments, block);
  }
  Body<Full, kFull, true, kWeighted>::Run(arguments, block);
}

// Splits the columns into blocks and runs Body<shape>::Run on each.
template <template <class, int, bool, bool> class Body, bool kWeighted, class Arguments>
void ForEachBlock(std::int64_t cols, const Arguments& arguments) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Full()));
  if (cols < lanes && cols <= 4) {
    return RunNarrow<hn::CappedTag<float, 4>, Body, kWeighted>(cols, arguments);
  }
  if (cols < lanes && cols <= 8) {
    return RunNarrow<hn::CappedTag<float, 8>, Body, kWeighted>(cols, arguments);
  }
  for (ColumnBlock block; block.first < cols;) {
    const std::int64_t vectors = (cols - block.first) / lanes;
    const std::int64_t full = BlockVectors(vectors);
    block.tail_cols = vectors == full ? (cols - block.first) % lanes : 0;
    RunBlock<Body, kWeighted>(full, arguments, block);
    block.first += full * lanes + block.tail_cols;
  }
}

// The columns of a row that one vector holds: all lanes, or the first of them.
template <class D>
struct WholeVector {
  hn::Vec<D> Load(const float* from) const { return hn::LoadU(D(), from); }
  void Store(hn::Vec<D> values, float* to) const { hn::StoreU(values, D(), to); }
  hn::Vec<D> Live(hn::Vec<D> values) const { return values; }
};
template <class D>
struct TailVector {
  hn::Mask<D> mask;
  hn::Vec<D> Load(const float* from) const { return LoadTail(D(), mask, from); }
  void Store(hn::Vec<D> values, float* to) const { hn::BlendedStore(values, mask, D(), to); }
  // Zeros in the other lanes, whatever was computed there.
  hn::Vec<D> Live(hn::Vec<D> values) const { return hn::IfThenElseZero(mask, values); }
};

// step(vector, first column) for all columns of a row.
template <class D, class Step>
HWY_INLINE void ForEachVector(std::int64_t cols, const Step& step) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  std::int64_t col = 0;
  for (; col + lanes <= cols; col += lanes) step(WholeVector<D>(), col);
  if (col < cols) {
    step(TailVector<D>{hn::FirstN(D(), static_cast<std::size_t>(cols - col))}, col);
  }
}

// One row and the sum of its gradients, which is scratch.
struct UpdatedRow {
  std::int64_t state_row = 0;
  std::int64_t cols = 0;
  float* gradient = nullptr;
  float* weights = nullptr;
  float* momentum1 = nullptr;  // of optimizers with one a column
  float* momentum2 = nullptr;
};

template <class D>
HWY_INLINE float SumOf(hn::Vec<D> values) {
  return hn::GetLane(hn::SumOfLanes(D(), values));
}

HWY_INLINE float NormRatio(float squares, float squares_below) {
  return squares_below > 0 ? std::sqrt(squares / squares_below) : 0;
}

template <class D>
HWY_INLINE void AdagradRow(const UpdateArguments& arguments, const UpdatedRow& row) {
  const D d;
  const auto rate = hn::Set(d, arguments.learning_rate), epsilon = hn::Set(d, arguments.epsilon);
  ForEachVector<D>(row.cols, [&](const auto& vector, std::int64_t col) HWY_ATTR {
    const auto gradient = hn::LoadU(d, row.gradient + col);
    const auto state = hn::MulAdd(gradient, gradient, vector.Load(row.momentum1 + col));
    vector.Store(state, row.momentum1 + col);
    const auto step = hn::Div(hn::Mul(rate, gradient), hn::Add(hn::Sqrt(state), epsilon));
    vector.Store(hn::Sub(vector.Load(row.weights + col), step), row.weights + col);
  });
}

// What Adam and its kin divide by, divided once an update: divisions one after the other would take
// longer than a short row.
struct AdamScales {
  explicit AdamScales(const UpdateArguments& arguments)
      : rate(-arguments.learning_rate / arguments.correction1),
        inverse_correction2(1 / arguments.correction2),
        mean_weight((1 - arguments.beta2) / static_cast<float>(arguments.cols)) {}

  float rate;
  float inverse_correction2;
  float mean_weight;  // of a column's square in the mean that a row has one of
};

// Updates the moments of the columns at `col` and returns m / (sqrt(v / correction2) + epsilon).
template <class D, class Vector>
HWY_INLINE hn::Vec<D> AdamStep(const UpdateArguments& arguments, const AdamScales& scales,
                               const UpdatedRow& row, const Vector& vector, std::int64_t col) {
  const D d;
  const auto gradient = hn::LoadU(d, row.gradient + col);
  const auto first = hn::MulAdd(hn::Set(d, arguments.beta1), vector.Load(row.momentum1 + col),
                                hn::Mul(hn::Set(d, 1 - arguments.beta1), gradient));
  vector.Store(first, row.momentum1 + col);
  const auto squares = hn::Mul(hn::Mul(hn::Set(d, 1 - arguments.beta2), gradient), gradient);
  const auto second =
      hn::MulAdd(hn::Set(d, arguments.beta2), vector.Load(row.momentum2 + col), squares);
  vector.Store(second, row.momentum2 + col);
  const auto root = hn::Sqrt(hn::Mul(second, hn::Set(d, scales.inverse_correction2)));
  return hn::Div(first, hn::Add(root, hn::Set(d, arguments.epsilon)));
}

template <class D>
HWY_INLINE void AdamRow(const UpdateArguments& arguments, const AdamScales& scales,
                        const UpdatedRow& row) {
  const D d;
  const auto rate = hn::Set(d, scales.rate);
  ForEachVector<D>(row.cols, [&](const auto& vector, std::int64_t col) HWY_ATTR {
    const auto step = AdamStep<D>(arguments, scales, row, vector, col);
    vector.Store(hn::MulAdd(rate, step, vector.Load(row.weights + col)), row.weights + col);
  });
}

// The ratio of the norms takes out of the step what all of its columns are multiplied by.
template <class D>
HWY_INLINE void LambRow(const UpdateArguments& arguments, const AdamScales& scales,
                        const UpdatedRow& row) {
  const D d;
  auto weight_squares = hn::Zero(d), step_squares = hn::Zero(d);
  ForEachVector<D>(row.cols, [&](const auto& vector, std::int64_t col) HWY_ATTR {
    const auto step = vector.Live(AdamStep<D>(arguments, scales, row, vector, col));
    hn::StoreU(step, d, row.gradient + col);
    step_squares = hn::MulAdd(step, step, step_squares);
    const auto weights = vector.Load(row.weights + col);
    weight_squares = hn::MulAdd(weights, weights, weight_squares);
  });
  const auto rate = hn::Set(
      d, -arguments.learning_rate * NormRatio(SumOf<D>(weight_squares), SumOf<D>(step_squares)));
  ForEachVector<D>(row.cols, [&](const auto& vector, std::int64_t col) HWY_ATTR {
    const auto step = hn::LoadU(d, row.gradient + col);
    vector.Store(hn::MulAdd(rate, step, vector.Load(row.weights + col)), row.weights + col);
  });
}

template <class D>
HWY_INLINE void PartialRowwiseAdamRow(const UpdateArguments& arguments, const AdamScales& scales,
                                      const UpdatedRow& row) {
  const D d;
  auto squares = hn::Zero(d);
  ForEachVector<D>(row.cols, [&](const auto&, std::int64_t col) HWY_ATTR {
    const auto gradient = hn::LoadU(d, row.gradient + col);
    squares = hn::MulAdd(gradient, gradient, squares);
  });
  float& second = arguments.momentum2[row.state_row];
  second = arguments.beta2 * second + scales.mean_weight * SumOf<D>(squares);
  const float root = std::sqrt(second * scales.inverse_correction2) + arguments.epsilon;
  const auto rate = hn::Set(d, scales.rate / root);
  const auto beta1 = hn::Set(d, arguments.beta1), rest = hn::Set(d, 1 - arguments.beta1);
  ForEachVector<D>(row.cols, [&](const auto& vector, std::int64_t col) HWY_ATTR {
    const auto first = hn::MulAdd(beta1, vector.Load(row.momentum1 + col),
                                  hn::Mul(rest, hn::LoadU(d, row.gradient + col)));
    vector.Store(first, row.momentum1 + col);
    vector.Store(hn::MulAdd(rate, first, vector.Load(row.weights + col)), row.weights + col);
  });
}

template <class D>
HWY_INLINE void LarsRow(const UpdateArguments& arguments, const UpdatedRow& row) {
  const D d;
  auto weight_squares = hn::Zero(d), gradient_squares = hn::Zero(d);
  ForEachVector<D>(row.cols, [&](const auto& vector, std::int64_t col) HWY_ATTR {
    const auto gradient = hn::LoadU(d, row.gradient + col);
    gradient_squares = hn::MulAdd(gradient, gradient, gradient_squares);
    const auto weights = vector.Load(row.weights + col);
    weight_squares = hn::MulAdd(weights, weights, weight_squares);
  });
  const auto rate = hn::Set(d, arguments.learning_rate * arguments.eta *
                                   NormRatio(SumOf<D>(weight_squares), SumOf<D>(gradient_squares)));
  const auto momentum = hn::Set(d, arguments.momentum);
  ForEachVector<D>(row.cols, [&](const auto& vector, std::int64_t col) HWY_ATTR {
    const auto moved = hn::MulAdd(rate, hn::LoadU(d, row.gradient + col),
                                  hn::Mul(momentum, vector.Load(row.momentum1 + col)));
    vector.Store(moved, row.momentum1 + col);
    vector.Store(hn::Sub(vector.Load(row.weights + col), moved), row.weights + col);
  });
}

template <class D, Optimizer kOptimizer>
HWY_INLINE void UpdateRow(const UpdateArguments& arguments,
                          [[maybe_unused]] const AdamScales& scales, const UpdatedRow& row) {
  if constexpr (kOptimizer == Optimizer::kAdagrad) return AdagradRow<D>(arguments, row);
  if constexpr (kOptimizer == Optimizer::kAdam) return AdamRow<D>(arguments, scales, row);
  if constexpr (kOptimizer == Optimizer::kLamb) return LambRow<D>(arguments, scales, row);
  if constexpr (kOptimizer == Optimizer::kLarsSgd) return LarsRow<D>(arguments, row);
  if constexpr (kOptimizer == Optimizer::kPartialRowwiseAdam) {
    return PartialRowwiseAdamRow<D>(arguments, scales, row);
  }
}

// The occurrences of one row.
struct RowRun {
  const RowList& gradients;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  float* sum = nullptr;
};

template <class D, int kFull, bool kTail, bool kWeighted>
struct SumRun {
  static void Run(const RowRun& run, const ColumnBlock& block) {
    constexpr int kVectors = kFull + (kTail ? 1 : 0);
    const D d;
    hn::Vec<D> sum[kVectors];
    SumKeys<D, kFull, kTail, kWeighted>(run.gradients, block, run.begin, run.end, sum);
    float* const out = run.sum + block.first;  // its last vector goes past the row, into scratch
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[v], d, out + v * static_cast<std::int64_t>(hn::Lanes(d)));
    }
  }
};

HWY_INLINE void PrefetchRow(const float* row, std::int64_t cols) {
  for (std::int64_t i = 0; i < cols; i += kCacheLineFloats) hwy::Prefetch(row + i);
  hwy::Prefetch(row + cols - 1);
}

// Row by row, as an optimizer with state in every column needs it: the gradient's sum goes to the
// scratch row, which stays in L1, and from there through the rule. Memory is what such an update
// waits for.
template <class D, Optimizer kOptimizer, bool kWeighted>
void UpdateByRow(const UpdateArguments& arguments) {
  const RowList& list = arguments.gradients;
  const std::int64_t cols = arguments.cols;
  constexpr bool kSecond = kOptimizer == Optimizer::kAdam || kOptimizer == Optimizer::kLamb;
  const std::int64_t lines = (cols * 4 + 63) / 64 * (kSecond ? 3 : 2);
  const std::int64_t distance = std::clamp<std::int64_t>(64 / lines, 1, 32);
  const AdamScales scales(arguments);
  for (std::int64_t begin = 0, end; begin < list.num_keys; begin = end) {
    end = RunEnd(arguments, begin);
    if (HWY_LIKELY(end + distance < list.num_keys)) {
      const auto ahead =
          static_cast<std::int64_t>(list.keys[end + distance] >> arguments.row_shift);
      PrefetchRow(arguments.weights + ahead * cols, cols);
      const std::int64_t state_ahead = StateRow(arguments, ahead);
      PrefetchRow(arguments.momentum1 + state_ahead * cols, cols);
      if constexpr (kSecond) PrefetchRow(arguments.momentum2 + state_ahead * cols, cols);
      if constexpr (kOptimizer == Optimizer::kPartialRowwiseAdam) {
        hwy::Prefetch(arguments.momentum2 + state_ahead);
      }
    }
    ForEachBlock<SumRun, kWeighted>(cols, RowRun{list, begin, end, arguments.scratch});
    const auto row = static_cast<std::int64_t>(list.keys[begin] >> arguments.row_shift);
    const std::int64_t state_row = StateRow(arguments, row);
    UpdateRow<D, kOptimizer>(arguments, scales,
                             {state_row, cols, arguments.scratch, arguments.weights + row * cols,
                              arguments.momentum1 + state_row * cols,
                              kSecond ? arguments.momentum2 + state_row * cols : nullptr});
  }
}

template <Optimizer kOptimizer, bool kWeighted>
void UpdateByRows(const UpdateArguments& arguments) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Full()));
  if (arguments.cols < lanes && arguments.cols <= 4) {
    UpdateByRow<hn::CappedTag<float, 4>, kOptimizer, kWeighted>(arguments);
  } else if (arguments.cols < lanes && arguments.cols <= 8) {
    UpdateByRow<hn::CappedTag<float, 8>, kOptimizer, kWeighted>(arguments);
  } else {
    UpdateByRow<Full, kOptimizer, kWeighted>(arguments);
  }
}

// State is one a row, or none: by block of columns, which stay in registers.
template <bool kWeighted>
void UpdateByBlocks(const UpdateArguments& arguments) {
  const auto pass = [&arguments](Pass what) HWY_ATTR {
    ForEachBlock<Update, kWeighted>(arguments.cols, UpdatePass{arguments, what});
  };
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Full()));
  const bool one_block = BlockVectors(arguments.cols / lanes) == arguments.cols / lanes;
  if (arguments.optimizer == Optimizer::kSgd) return pass(Pass::kSgd);
  if (one_block) return pass(Pass::kRowwiseAdagrad);
  std::fill_n(arguments.scratch, arguments.gradients.num_keys, 0.0F);
  pass(Pass::kAddSquares);
  std::int64_t run = 0;
  for (std::int64_t begin = 0; begin < arguments.gradients.num_keys; ++run) {
    const auto row =
        static_cast<std::int64_t>(arguments.gradients.keys[begin] >> arguments.row_shift);
    arguments.scratch[run] = AdagradStep(arguments, row, arguments.scratch[run]);
    begin = RunEnd(arguments, begin);
  }
  pass(Pass::kApplySteps);
}

template <bool kWeighted>
void UpdateAll(const UpdateArguments& arguments) {
  switch (arguments.optimizer) {
    case Optimizer::kSgd:
    case Optimizer::kRowwiseAdagrad:
      return UpdateByBlocks<kWeighted>(arguments);
    case Optimizer::kAdagrad:
      return UpdateByRows<Optimizer::kAdagrad, kWeighted>(arguments);
    case Optimizer::kAdam:
      return UpdateByRows<Optimizer::kAdam, kWeighted>(arguments);
    case Optimizer::kPartialRowwiseAdam:
      return UpdateByRows<Optimizer::kPartialRowwiseAdam, kWeighted>(arguments);
    case Optimizer::kLamb:
      return UpdateByRows<Optimizer::kLamb, kWeighted>(arguments);
    case Optimizer::kLarsSgd:
      return UpdateByRows<Optimizer::kLarsSgd, kWeighted>(arguments);
    case Optimizer::kNone:
      return;
  }
}

void PoolRowsHere(const PoolArguments& arguments) {
  if (arguments.offsets == nullptr) {
    ForEachBlock<Gather, false>(arguments.cols, arguments);
  } else if (arguments.list.key_weights != nullptr) {
    ForEachBlock<Pool, true>(arguments.cols, arguments);
  } else {
    ForEachBlock<Pool, false>(arguments.cols, arguments);
  }
}

void UpdateRowsHere(const UpdateArguments& arguments) {
  if (arguments.gradients.key_weights != nullptr) {
    UpdateAll<true>(arguments);
  } else {
    UpdateAll<false>(arguments);
  }
}

void FillPeriodicHere(float* out, std::int64_t count, const float* block, std::int64_t period,
                      std::int64_t phase) {
  const Full d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < count; i += lanes) {
    hn::Stream(hn::LoadU(d, block + phase), d, out + i);
    phase += lanes;
    if (phase >= period) phase -= period;
  }
  hwy::FlushStream();
}

std::string InstructionSetHere() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace neuroshard
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace neuroshard {
namespace {
HWY_EXPORT(PoolRowsHere);
HWY_EXPORT(UpdateRowsHere);
HWY_EXPORT(FillPeriodicHere);
HWY_EXPORT(InstructionSetHere);
}  // namespace

void PoolRows(const PoolArguments& arguments) { HWY_DYNAMIC_DISPATCH(PoolRowsHere)(arguments); }

std::int64_t UpdateScratchFloats(Optimizer optimizer, std::int64_t num_keys, std::int64_t cols) {
  if (optimizer == Optimizer::kSgd) return 0;
  return optimizer == Optimizer::kRowwiseAdagrad ? num_keys
                                                 : cols + MemoryArena::kAlignmentBytes / 4;
}

void UpdateRows(const UpdateArguments& arguments) {
  HWY_DYNAMIC_DISPATCH(UpdateRowsHere)(arguments);
}

void FillPeriodic(float* out, std::int64_t count, const float* block, std::int64_t period,
                  std::int64_t phase) {
  HWY_DYNAMIC_DISPATCH(FillPeriodicHere)(out, count, block, period, phase);
}

std::uint64_t ReadEveryLine(const std::uint64_t* words, std::int64_t num_words) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < num_words; i += 8) sum += words[i];
  return sum;
}

std::string KernelInstructionSet() { return HWY_DYNAMIC_DISPATCH(InstructionSetHere)(); }

std::string KernelLibrary() {
  return std::to_string(HWY_MAJOR) + "." + std::to_string(HWY_MINOR) + "." +
         std::to_string(HWY_PATCH);
}

std::vector<std::int64_t> SupportedInstructionSets() {
  const std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  return {targets.begin(), targets.end()};
}

}  // namespace neuroshard
#endif  // HWY_ONCE
