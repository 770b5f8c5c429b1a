#include "server/pretrain/fit/dense_algebra.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace neuroshard {

void MultiplyByTransposed(const float* x, const float* weight, float* out, std::int64_t n,
                          std::int64_t inputs, std::int64_t outputs) {
  const int k = static_cast<int>(inputs);
  const int m = static_cast<int>(outputs);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(n), m, k, 1.0f, x, k,
              weight, k, 0.0f, out, m);
}

void Multiply(const float* gradient, const float* weight, float* out, std::int64_t n,
              std::int64_t outputs, std::int64_t inputs, Accumulate accumulate) {
  const int k = static_cast<int>(outputs);
  const int m = static_cast<int>(inputs);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(n), m, k, 1.0f, gradient,
              k, weight, m, accumulate == Accumulate::kAdd ? 1.0f : 0.0f, out, m);
}

void AddTransposedMultiply(const float* gradient, const float* x, float* weight_gradient,
                           std::int64_t outputs, std::int64_t n, std::int64_t inputs) {
  const int m = static_cast<int>(outputs);
  const int k = static_cast<int>(inputs);
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, m, k, static_cast<int>(n), 1.0f, gradient, m,
              x, k, 1.0f, weight_gradient, k);
}

void AddBias(const float* bias, std::int64_t width, std::int64_t n, float* lines) {
  for (std::int64_t i = 0; i < n; ++i, lines += width) {
    for (std::int64_t c = 0; c < width; ++c) lines[c] += bias[c];
  }
}

void AddBiasRelu(const float* bias, std::int64_t width, std::int64_t n, float* lines) {
  for (std::int64_t i = 0; i < n; ++i, lines += width) {
    for (std::int64_t c = 0; c < width; ++c) lines[c] = std::max(lines[c] + bias[c], 0.0f);
  }
}

void AddColumnSums(const float* lines, std::int64_t width, std::int64_t n, float* sums) {
  for (std::int64_t i = 0; i < n; ++i, lines += width) {
    for (std::int64_t c = 0; c < width; ++c) sums[c] += lines[c];
  }
}

void AddBiasExp(const float* bias, std::int64_t width, std::int64_t n, float least, float greatest,
                float* lines) {
  for (std::int64_t i = 0; i < n; ++i, lines += width) {
    for (std::int64_t c = 0; c < width; ++c) {
      lines[c] = std::exp(std::clamp(lines[c] + bias[c], least, greatest));
    }
  }
}

void AddBiasSignedHalves(const float* bias, std::int64_t width, std::int64_t n, float* lines) {
  const std::int64_t half = (width + 1) / 2;
  for (std::int64_t i = 0; i < n; ++i, lines += width) {
    for (std::int64_t c = 0; c < half; ++c) lines[c] = std::max(lines[c] + bias[c], 0.0f);
    for (std::int64_t c = half; c < width; ++c) lines[c] = std::min(lines[c] + bias[c], 0.0f);
  }
}

void MaskZeros(const float* values, std::int64_t count, float* gradient) {
  for (std::int64_t i = 0; i < count; ++i) gradient[i] = values[i] != 0 ? gradient[i] : 0.0f;
}

void MultiplyByExp(const float* values, std::int64_t count, float least, float greatest,
                   float* gradient) {
  const float low = std::exp(least);
  const float high = std::exp(greatest);
  for (std::int64_t i = 0; i < count; ++i) {
    const bool inside = values[i] > low && values[i] < high;
    gradient[i] = inside ? gradient[i] * values[i] : 0.0f;
  }
}

void AddLines(const float* a, const float* b, std::int64_t count, float* sum) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

void SumSegments(const float* lines, std::int64_t width, std::span<const std::int64_t> begin,
                 std::span<const std::int64_t> row, float* sums) {
  for (std::size_t s = 0; s + 1 < begin.size(); ++s, sums += width) {
    std::fill_n(sums, width, 0.0f);
    for (std::int64_t i = begin[s]; i < begin[s + 1]; ++i) {
      const float* line = lines + row[static_cast<std::size_t>(i)] * width;
      for (std::int64_t c = 0; c < width; ++c) sums[c] += line[c];
    }
  }
}

void SpreadSegments(const float* segments, std::int64_t width, std::span<const std::int64_t> begin,
                    std::span<const std::int64_t> row, float* lines) {
  for (std::size_t s = 0; s + 1 < begin.size(); ++s, segments += width) {
    for (std::int64_t i = begin[s]; i < begin[s + 1]; ++i) {
      float* line = lines + row[static_cast<std::size_t>(i)] * width;
      for (std::int64_t c = 0; c < width; ++c) line[c] += segments[c];
    }
  }
}

}  // namespace neuroshard
