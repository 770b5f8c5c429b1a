// The optimizers of embedding_op.h that keep a value for each weight, four columns at a time. Where
// a quotient has no value (0 / 0), it is 0.
#pragma once

#include "common/domain/vocabulary.h"
#include "kernels/cuda/numbers.h"

namespace neuroshard::cuda {

// A value for each weight: momentum1.
constexpr bool HasMoments(Optimizer optimizer) {
  return optimizer != Optimizer::kSgd && optimizer != Optimizer::kRowwiseAdagrad;
}
// Another one for each weight: momentum2.
constexpr bool HasSecondMoments(Optimizer optimizer) {
  return optimizer == Optimizer::kAdam || optimizer == Optimizer::kLamb;
}
// One for each row.
constexpr bool HasRowState(Optimizer optimizer) {
  return optimizer == Optimizer::kRowwiseAdagrad || optimizer == Optimizer::kPartialRowwiseAdam;
}

// The optimizer at one step t, counted from 1.
struct UpdateStep {
  float learning_rate = 0;
  float epsilon = 0;
  Optimizer optimizer = Optimizer::kSgd;
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

NS_DEVICE_CODE float Quotient(float value, float by) { return value == 0 ? 0 : value / by; }

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
                  SquareRoot(second * step.inverse_correction2) + step.epsilon);
}
NS_DEVICE_CODE Float4 AdamStep(const UpdateStep& step, Float4 first, Float4 second) {
  return {AdamStep(step, first.x, second.x), AdamStep(step, first.y, second.y),
          AdamStep(step, first.z, second.z), AdamStep(step, first.w, second.w)};
}

}  // namespace neuroshard::cuda
