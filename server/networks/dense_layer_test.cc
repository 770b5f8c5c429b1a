#include "server/networks/dense_layer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "common/base/random.h"
#include "hwy/highway.h"

namespace neuroshard {
namespace {

struct Shape {
  std::int64_t in;
  std::int64_t out;
  bool padded;
};

std::vector<float> RandomValues(std::int64_t count, Random& random) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(4 * random.UniformReal() - 2);
  return values;
}

// As the class comment says, one multiply-add at a time.
float Expected(const Shape& shape, const float* x, const float* weight, float bias, bool relu) {
  float value = bias;
  if (shape.padded && shape.out <= 4) {
    float lanes[16] = {};
    for (std::int64_t i = 0; i < shape.in; ++i) {
      lanes[i % 16] = std::fma(x[i], weight[i], lanes[i % 16]);
    }
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    value = bias + lanes[0];
  } else {
    for (std::int64_t i = 0; i < shape.in; ++i) value = std::fma(x[i], weight[i], value);
  }
  return relu && value < 0 ? 0 : value;
}

TEST(DenseLayerTest, HasTheSameBitsForEveryInstructionSetAndBatch) {
  const Shape shapes[] = {{32, 64, true}, {64, 1, true},  {64, 2, true},    {35, 96, false},
                          {8, 128, true}, {5, 17, false}, {128, 128, true}, {24, 72, true},
                          {20, 4, true},  {3, 4, false},  {1, 1, false},    {72, 2, true}};
  Random random(1);
  for (const Shape& shape : shapes) {
    const std::int64_t x_stride = shape.padded ? (shape.in + 15) / 16 * 16 : shape.in;
    for (const std::int64_t n : {1, 3, 4, 11}) {
      const auto weight = RandomValues(shape.in * shape.out, random);
      const auto bias = RandomValues(shape.out, random);
      std::vector<float> x = RandomValues(n * x_stride, random);
      for (std::int64_t row = 0; row < n; ++row) {
        for (std::int64_t i = shape.in; i < x_stride; ++i) {
          x[static_cast<std::size_t>(row * x_stride + i)] = 0;
        }
      }
      const bool relu = random.Below(2) == 0;
      const DenseLayer layer(shape.in, shape.out, weight, bias,
                             relu ? DenseActivation::kRelu : DenseActivation::kNone, shape.padded);
      for (const std::int64_t target : DenseLayerInstructionSets()) {
        hwy::SetSupportedTargetsForTest(target);
        std::vector<float> y(static_cast<std::size_t>(n * layer.stride()), -1.0F);
        layer.Run(n, x.data(), x_stride, y.data());
        for (std::int64_t row = 0; row < n; ++row) {
          for (std::int64_t o = 0; o < layer.stride(); ++o) {
            const float value = y[static_cast<std::size_t>(row * layer.stride() + o)];
            const float expected = o < shape.out ? Expected(shape, x.data() + row * x_stride,
                                                            weight.data() + o * shape.in,
                                                            bias[static_cast<std::size_t>(o)], relu)
                                                 : 0;
            ASSERT_EQ(value, expected) << shape.in << " x " << shape.out << ", row " << row
                                       << ", column " << o << ", target " << target;
          }
        }
      }
      hwy::SetSupportedTargetsForTest(0);
    }
  }
}

TEST(DenseLayerTest, NanStaysNan) {
  for (const std::int64_t out : {1, 20}) {
    const std::vector<float> weight(static_cast<std::size_t>(16 * out), 1.0F);
    const std::vector<float> bias(static_cast<std::size_t>(out), 0.0F);
    const DenseLayer layer(16, out, weight, bias, DenseActivation::kRelu, true);
    std::vector<float> x(16, 0.0F);
    x[3] = std::nanf("");
    std::vector<float> y(static_cast<std::size_t>(layer.stride()));

    layer.Run(1, x.data(), 16, y.data());

    for (std::int64_t o = 0; o < out; ++o) {
      EXPECT_TRUE(std::isnan(y[static_cast<std::size_t>(o)])) << out << " outputs";
    }
  }
}

}  // namespace
}  // namespace neuroshard
