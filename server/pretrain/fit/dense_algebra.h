// The loops that training spends its time in: products of row-major matrices by the installed BLAS,
// and what goes over their lines. One thread each; the same arguments give the same bits.
#pragma once

#include <cstdint>
#include <span>

namespace neuroshard {

enum class Accumulate { kReplace, kAdd };

// out [n, outputs] = x [n, inputs] * weight^T, weight [outputs, inputs].
void MultiplyByTransposed(const float* x, const float* weight, float* out, std::int64_t n,
                          std::int64_t inputs, std::int64_t outputs);

// out [n, inputs] = (or +=) gradient [n, outputs] * weight [outputs, inputs].
void Multiply(const float* gradient, const float* weight, float* out, std::int64_t n,
              std::int64_t outputs, std::int64_t inputs, Accumulate accumulate);

// weight_gradient [outputs, inputs] += gradient^T * x, gradient [n, outputs], x [n, inputs].
void AddTransposedMultiply(const float* gradient, const float* x, float* weight_gradient,
                           std::int64_t outputs, std::int64_t n, std::int64_t inputs);

// Of n lines of `width` values each.
void AddBias(const float* bias, std::int64_t width, std::int64_t n, float* lines);
void AddBiasRelu(const float* bias, std::int64_t width, std::int64_t n, float* lines);
void AddBiasExp(const float* bias, std::int64_t width, std::int64_t n, float least, float greatest,
                float* lines);  // exp of what is clamped to [least, greatest]
void AddBiasSignedHalves(const float* bias, std::int64_t width, std::int64_t n, float* lines);
void AddColumnSums(const float* lines, std::int64_t width, std::int64_t n, float* sums);

// gradient[i] = 0 where values[i], which an activation gave, is 0.
void MaskZeros(const float* values, std::int64_t count, float* gradient);

// gradient[i] *= values[i], which AddBiasExp gave with these bounds; 0 at the bounds.
void MultiplyByExp(const float* values, std::int64_t count, float least, float greatest,
                   float* gradient);

// sum[i] = a[i] + b[i]; `sum` may be one of them.
void AddLines(const float* a, const float* b, std::int64_t count, float* sum);

// Segment s is the lines row[begin[s] .. begin[s + 1]). sums [segments, width] = sum over each
// segment's lines; and back: every line of a segment += that segment's values.
void SumSegments(const float* lines, std::int64_t width, std::span<const std::int64_t> begin,
                 std::span<const std::int64_t> row, float* sums);
void SpreadSegments(const float* segments, std::int64_t width, std::span<const std::int64_t> begin,
                    std::span<const std::int64_t> row, float* lines);

}  // namespace neuroshard
