// The optimizers of embedding_op.h that keep a value for each weight, four columns at a time. Where
// a quotient has no value (0 / 0), it is 0.
#pragma once

#include <cstdint>

#include "kernels/cuda/numbers.h"

namespace neuroshard::cuda {

enum class UpdateRule : std::uint8_t {
  kSgd,
  kRowwiseAdagrad,
  // With a value for each weight.
  kAdagrad,
  kAdam,
  kPartialRowwiseAdam,
  kLamb,
  kLarsSgd,
};

constexpr bool HasMoments(UpdateRule rule) { return rule >= UpdateRule::kAdagrad; }
// Adam's second moment, or a row's mean of it.
constexpr bool HasSecondMoments(UpdateRule rule) {
  return rule == UpdateRule::kAdam || rule == UpdateRule::kLamb;
}
constexpr bool HasRowState(UpdateRule rule) {
  return rule == UpdateRule::kRowwiseAdagrad || rule == UpdateRule::kPartialRowwiseAdam;
}

// The optimizer at one step t, counted from 1.
struct UpdateStep {
  float learning_rate = 0;
  float epsilon = 0;
  UpdateRule rule = UpdateRule::kSgd;
  float beta1 = 0;
  float beta2 = 0;
  // 1 / (1 - beta1^t), 1 / (1 - beta2^t); 1 where there is nothing to correct.
  float inverse_correction1 = 1;
  float inverse_correction2 = 1;
  float eta = 0;
  float momentum = 0;
};

NS_DEVICE_CODE float SquareRoot(float value) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(value);
#else
  return __builtin_sqrtf(value);
#endif
}

// Within 3 ulp, on a device: every weight has a root and a quotient, and what rounds them right is
// as much code as all else.
NS_DEVICE_CODE float ShortSquareRoot(float value) {
#ifdef __CUDA_ARCH__
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(value));
  return root;
#else
  return SquareRoot(value);
#endif
}
NS_DEVICE_CODE float Quotient(float value, float by) {
  if (value == 0) return 0;
#ifdef __CUDA_ARCH__
  return __fdividef(value, by);
#else
  return value / by;
#endif
}

// |a| / |b|, of sums of squares.
NS_DEVICE_CODE float NormRatio(float squares, float squares_below) {
  return squares_below > 0 ? SquareRoot(squares / squares_below) : 0;
}

NS_DEVICE_CODE Float4 Squares(Float4 v) { return {v.x * v.x, v.y * v.y, v.z * v.z, v.w * v.w}; }

NS_DEVICE_CODE Float4 FirstMoments(const UpdateStep& step, Float4 before, Float4 gradient) {
  return MultiplyAdd(step.beta1 * before, 1 - step.beta1, gradient);
}
NS_DEVICE_CODE Float4 SecondMoments(const UpdateStep& step, Float4 before, Float4 gradient) {
  return MultiplyAdd(step.beta2 * before, 1 - step.beta2, Squares(gradient));
}

// Adam's step before the learning rate; Adagrad's, of the gradient and its sum of squares.
NS_DEVICE_CODE float AdamStep(const UpdateStep& step, float first, float second) {
  return Quotient(first * step.inverse_correction1,
                  ShortSquareRoot(second * step.inverse_correction2) + step.epsilon);
}
NS_DEVICE_CODE Float4 AdamStep(const UpdateStep& step, Float4 first, Float4 second) {
  return {AdamStep(step, first.x, second.x), AdamStep(step, first.y, second.y),
          AdamStep(step, first.z, second.z), AdamStep(step, first.w, second.w)};
}

}  // namespace neuroshard::cuda
