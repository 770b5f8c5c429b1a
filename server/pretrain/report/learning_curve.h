// Learning curve: the error of a network by the number of samples that it learned from. Trainings
// with the same configuration on growing shares of them, on the same held-out samples.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "server/pretrain/report/regression_metrics.h"

namespace neuroshard {

struct LearningPoint {
  std::int64_t train_samples = 0;
  double mape_percent = 0;
  double kendall_tau = 0;
};

struct LearningCurve {
  std::string name;                   // of the report whose held-out samples it is about
  std::vector<LearningPoint> points;  // the last one is of all training samples
};

// The training samples are divided by these; all of them follow.
inline constexpr std::array<std::int64_t, 3> kLearningCurveDivisors = {8, 4, 2};

// One in `divisor` of `train`, at random by seed, ascending; a larger share has all of a smaller.
std::vector<std::int64_t> ShareOfTraining(std::vector<std::int64_t> train, std::int64_t divisor,
                                          std::uint64_t seed);

// "compute, learning curve 1/8": names the fit, for progress and checkpoints.
std::string LearningFitName(const std::string& network, std::int64_t divisor);

// Appends to the curve of this name, which is made where it is not there.
void AddLearningPoint(const std::string& name, std::int64_t train_samples,
                      const RegressionMetrics& held_out, std::vector<LearningCurve>& curves);

}  // namespace neuroshard
