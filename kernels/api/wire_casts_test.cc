#include "kernels/api/wire_casts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "common/base/float16.h"
#include "common/base/random.h"
#include "kernels/cpu/testing/chosen_instruction_set.h"

namespace neuroshard {
namespace {

class WireCastsTest : public ::testing::TestWithParam<std::int64_t> {
 private:
  ChosenInstructionSet chosen_{GetParam()};
};

std::uint16_t ToBits(DataType dtype, float value) {
  return dtype == DataType::kFp16 ? FloatToFp16(value) : FloatToBf16(value);
}
float ToFloat(DataType dtype, std::uint16_t bits) {
  return dtype == DataType::kFp16 ? Fp16ToFloat(bits) : Bf16ToFloat(bits);
}

// Values of every exponent, those in the middle between two of the type among them.
std::vector<float> Values(std::size_t count, Random& random) {
  std::vector<float> values = {0.0F,
                               -0.0F,
                               1.0F,
                               65504.0F,
                               65519.9F,
                               65520.0F,
                               -1e-7F,
                               6e-8F,
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity()};
  while (values.size() < count) {
    auto bits = static_cast<std::uint32_t>(random.Next());
    if (random.Below(4) == 0) bits = (bits & 0xffff0000U) | 0x8000U;      // a tie of bf16
    if (random.Below(4) == 0) bits = (bits & 0xffffe000U) | 0x1000U;      // one of fp16
    if (random.Below(2) == 0) bits = (bits & 0x807fffffU) | 0x3f000000U;  // [0.5, 1)
    if (const float value = FloatOfBits(bits); !std::isnan(value)) values.push_back(value);
  }
  values.resize(count);
  return values;
}

TEST_P(WireCastsTest, CastAsOneValueIs) {
  Random random(5);
  for (const DataType dtype : {DataType::kFp16, DataType::kBf16}) {
    for (const std::size_t count : {0, 1, 7, 8, 15, 16, 17, 33, 5000}) {
      const std::vector<float> values = Values(count, random);
      std::vector<std::uint16_t> wire(count + 1, 0x1234);
      CastToWire(dtype, values, std::span(wire).first(count));
      EXPECT_EQ(wire[count], 0x1234);
      std::vector<float> back(count + 1, -7);
      CastFromWire(dtype, std::span(wire).first(count), std::span(back).first(count));
      EXPECT_EQ(back[count], -7);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(wire[i], ToBits(dtype, values[i])) << ToText(dtype) << " of " << values[i];
        ASSERT_EQ(BitsOfFloat(back[i]), BitsOfFloat(ToFloat(dtype, wire[i]))) << ToText(dtype);
      }
    }
  }
}

TEST_P(WireCastsTest, NanStaysNan) {
  const std::vector<float> values(40, std::numeric_limits<float>::quiet_NaN());
  for (const DataType dtype : {DataType::kFp16, DataType::kBf16}) {
    std::vector<std::uint16_t> wire(values.size());
    CastToWire(dtype, values, wire);
    std::vector<float> back(values.size());
    CastFromWire(dtype, wire, back);
    for (const float value : back) EXPECT_TRUE(std::isnan(value)) << ToText(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, WireCastsTest,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& of) { return std::string(hwy::TargetName(of.param)); });

}  // namespace
}  // namespace neuroshard
