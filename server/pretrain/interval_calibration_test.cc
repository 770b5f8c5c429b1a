#include "server/pretrain/interval_calibration.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/random.h"

namespace neuroshard {
namespace {

// Members that agree within 2%, and measurements off by noise that falls with cost.
EnsemblePredictions Noisy(int count, std::uint64_t seed) {
  Random random(seed);
  EnsemblePredictions predictions;
  for (int i = 0; i < count; ++i) {
    const double cost = std::exp(6 * random.UniformReal() - 3);
    const double noise = 0.3 / (1 + cost);
    const double normal = random.UniformReal() + random.UniformReal() + random.UniformReal() +
                          random.UniformReal() - 2;
    predictions.members_ms.push_back({cost, cost * 1.02, cost * 0.98});
    predictions.measured_ms.push_back(cost * std::exp(1.7 * noise * normal));
  }
  return predictions;
}

TEST(IntervalCalibrationTest, CoversAsManyOthersAsItSays) {
  const auto interval = CalibrateInterval(Noisy(600, 1), 0.9);
  ASSERT_TRUE(interval.has_value());
  EXPECT_EQ(interval->noise.size(), 8u);
  EXPECT_GT(interval->noise.front(), 3 * interval->noise.back()) << "small costs are noisier";
  EXPECT_NEAR(IntervalCoverage(*interval, Noisy(2000, 2)), 0.9, 0.04);
}

TEST(IntervalCalibrationTest, FewValuesGiveFewerBucketsAndTooFewNone) {
  EXPECT_EQ(CalibrateInterval(Noisy(45, 1), 0.9)->noise.size(), 2u);
  EXPECT_FALSE(CalibrateInterval(Noisy(19, 1), 0.9).has_value());
}

TEST(IntervalCalibrationTest, AnExactModelStillHasALegalInterval) {
  EnsemblePredictions predictions = Noisy(100, 1);
  for (std::size_t i = 0; i < 100; ++i) {
    predictions.members_ms[i] = {predictions.measured_ms[i]};
  }
  const auto interval = CalibrateInterval(predictions, 0.9);
  ASSERT_TRUE(interval.has_value());
  EXPECT_GT(interval->factor, 0);
  EXPECT_EQ(IntervalCoverage(*interval, predictions), 1);
}

}  // namespace
}  // namespace neuroshard
