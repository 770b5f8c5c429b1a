#include "server/pretrain/train/interval_calibration.h"

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
  EXPECT_EQ(CalibrateInterval(Noisy(130, 1), 0.9)->noise.size(), 2u);
  EXPECT_EQ(CalibrateInterval(Noisy(45, 1), 0.9)->noise.size(), 1u);
  EXPECT_FALSE(CalibrateInterval(Noisy(19, 1), 0.9).has_value());
}

// A value a rank of collectives, whose ranks err together; twice as much over 8 ranks as over 2.
std::vector<CalibrationValue> Collectives(int count, std::uint64_t seed) {
  Random random(seed);
  std::vector<CalibrationValue> values;
  for (int group = 0; group < count; ++group) {
    const int ranks = random.Below(2) == 0 ? 2 : 8;
    const double cost = std::exp(2 * random.UniformReal());
    const double error = (ranks == 2 ? 0.1 : 0.2) * (2 * random.UniformReal() - 1);
    for (int rank = 0; rank < ranks; ++rank) {
      const double own = 0.01 * (2 * random.UniformReal() - 1);
      values.push_back({cost * std::exp(error + own), cost, {cost}, group, ranks});
    }
  }
  return values;
}

TEST(IntervalCalibrationTest, EachRankCountIsCoveredWithAFactorOfItsOwn) {
  const auto interval = CalibrateInterval(Collectives(800, 1), 0.9);
  ASSERT_TRUE(interval.has_value());
  ASSERT_EQ(interval->ranks, (std::vector<std::int64_t>{2, 8}));
  EXPECT_NEAR(interval->rank_factors[1] / interval->rank_factors[0], 2, 0.2);
  for (const int ranks : {2, 8}) {
    EnsemblePredictions others;
    for (const CalibrationValue& value : Collectives(1600, 2)) {
      if (value.num_ranks != ranks) continue;
      others.members_ms.push_back(value.members_ms);
      others.measured_ms.push_back(value.measured_ms);
    }
    const std::vector<int> num_ranks(others.measured_ms.size(), ranks);
    EXPECT_NEAR(IntervalCoverage(*interval, others, num_ranks), 0.9, 0.03) << ranks;
  }
}

TEST(IntervalCalibrationTest, ACollectiveCountsOnceHoweverManyRanksTellTheSame) {
  const std::vector<CalibrationValue> values = Collectives(100, 3);
  std::vector<CalibrationValue> more;
  for (const CalibrationValue& value : values) {
    // Some collectives' values three times, others' once.
    more.insert(more.end(), value.group % 2 == 0 ? 3 : 1, value);
  }
  const auto interval = CalibrateInterval(values, 0.9);
  const auto same = CalibrateInterval(more, 0.9);
  ASSERT_TRUE(interval.has_value() && same.has_value());
  EXPECT_EQ(*interval, *same);
  // Nineteen collectives are too few, though they have more values than twenty.
  EXPECT_FALSE(CalibrateInterval(Collectives(19, 3), 0.9).has_value());
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
