#include <gtest/gtest.h>

#include <cmath>

#include "common/base/random.h"
#include "server/pretrain/report/regression_metrics.h"

namespace neuroshard {
namespace {

struct Measured {
  std::vector<double> predicted_ms;
  std::vector<double> measured_ms;
  std::vector<std::int64_t> at_unix_ms;
};

// In any order; 30% slower in the second half of the time.
Measured SlowSecondHalf(int count) {
  Random random(1);
  Measured measured;
  for (int i = 0; i < count; ++i) {
    const double share = random.UniformReal();
    const double cost = std::exp(3 * random.UniformReal());
    const double noise = std::exp(0.1 * (2 * random.UniformReal() - 1));
    measured.predicted_ms.push_back(cost);
    measured.measured_ms.push_back(cost * noise * (share < 0.5 ? 1 : 1.3));
    measured.at_unix_ms.push_back(static_cast<std::int64_t>(1e6 * share));
  }
  return measured;
}

TEST(MeasurementDriftTest, FindsWhenTheMachineWasSlow) {
  const Measured measured = SlowSecondHalf(2000);
  const MeasurementDrift drift =
      DriftOf(measured.predicted_ms, measured.measured_ms, measured.at_unix_ms);
  EXPECT_NEAR(drift.least, 1, 0.03);
  EXPECT_NEAR(drift.greatest, 1.3, 0.04);
  int found = 0;
  for (std::size_t i = 0; i < drift.slowness.size(); ++i) {
    found += std::abs(drift.slowness[i] - (measured.at_unix_ms[i] < 500'000 ? 1 : 1.3)) < 0.04;
  }
  EXPECT_GT(found, 1850);  // all but the block in which it changes
}

TEST(MeasurementDriftTest, FewValuesAndUnknownTimesSayNothing) {
  const Measured measured = SlowSecondHalf(199);
  const MeasurementDrift drift =
      DriftOf(measured.predicted_ms, measured.measured_ms, measured.at_unix_ms);
  EXPECT_EQ(drift.slowness, std::vector<double>(199, 1));
  EXPECT_EQ(drift.greatest, 1);

  Measured timeless = SlowSecondHalf(1000);
  timeless.at_unix_ms.assign(1000, 0);
  EXPECT_EQ(DriftOf(timeless.predicted_ms, timeless.measured_ms, timeless.at_unix_ms).slowness,
            std::vector<double>(1000, 1));
}

}  // namespace
}  // namespace neuroshard
