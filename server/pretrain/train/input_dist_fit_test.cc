#include <gtest/gtest.h>

#include <cmath>

#include "common/base/random.h"
#include "server/pretrain/train/model_training.h"

namespace neuroshard {
namespace {

std::vector<InputDistObservation> Observe(const InputDistRates& truth, double noise) {
  Random random(3);
  std::vector<InputDistObservation> observations;
  for (int i = 0; i < 60; ++i) {
    InputDistObservation observation;
    observation.bytes = {1e6 * random.UniformReal(), 1e6 * random.UniformReal(),
                         2e5 * random.UniformReal()};
    observation.ms = (truth.fixed_ms + truth.Ms(observation.bytes)) *
                     std::exp(noise * (random.UniformReal() - 0.5));
    observations.push_back(observation);
  }
  return observations;
}

double ErrorOf(const InputDistRates& rates, const std::vector<InputDistObservation>& of) {
  double error = 0;
  for (const InputDistObservation& one : of) {
    error += std::pow((rates.fixed_ms + rates.Ms(one.bytes)) / one.ms - 1, 2);
  }
  return error;
}

TEST(InputDistFitTest, FindsTheRatesThatMadeTheTimes) {
  const InputDistRates truth{4, 0.7, 2, 5, 9};
  const InputDistRates fit = FitInputDist(4, Observe(truth, 0));
  EXPECT_EQ(fit.num_ranks, 4);
  EXPECT_NEAR(fit.fixed_ms, 0.7, 1e-9);
  EXPECT_NEAR(fit.whole_ns_per_byte, 2, 1e-9);
  EXPECT_NEAR(fit.cut_ns_per_byte, 5, 1e-9);
  EXPECT_NEAR(fit.lengths_ns_per_byte, 9, 1e-9);
}

// Kilobytes that take hours: squares of such shares are tiny.
TEST(InputDistFitTest, UnitsDoNotMatter) {
  std::vector<InputDistObservation> observations = Observe({4, 0.7, 2, 5, 9}, 0);
  for (InputDistObservation& one : observations) one.ms *= 1e8;
  const InputDistRates fit = FitInputDist(4, observations);
  EXPECT_NEAR(fit.fixed_ms, 0.7e8, 1);
  EXPECT_NEAR(fit.whole_ns_per_byte, 2e8, 1);
  EXPECT_NEAR(fit.lengths_ns_per_byte, 9e8, 1);
}

// Times that fall with the bytes of lengths: the best fit would have a negative rate.
TEST(InputDistFitTest, NoRateIsNegativeAndNoneOfItsNeighboursFitsBetter) {
  const std::vector<InputDistObservation> noisy = Observe({2, 1.5, 3, 1, -4}, 0.3);
  const InputDistRates fit = FitInputDist(2, noisy);
  EXPECT_EQ(fit.lengths_ns_per_byte, 0);
  const double least = ErrorOf(fit, noisy);
  for (double InputDistRates::*rate :
       {&InputDistRates::fixed_ms, &InputDistRates::whole_ns_per_byte,
        &InputDistRates::cut_ns_per_byte, &InputDistRates::lengths_ns_per_byte}) {
    EXPECT_GE(fit.*rate, 0);
    for (const double step : {-0.01, 0.01}) {
      InputDistRates near = fit;
      near.*rate = std::max(0.0, near.*rate + step);
      EXPECT_GE(ErrorOf(near, noisy), least);
    }
  }
}

}  // namespace
}  // namespace neuroshard
