#include "server/pretrain/report/learning_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "common/base/random.h"

namespace neuroshard {

std::vector<std::int64_t> ShareOfTraining(std::vector<std::int64_t> train, std::int64_t divisor,
                                          std::uint64_t seed) {
  Random(seed).Shuffle(train);
  train.resize(train.size() / static_cast<std::size_t>(divisor));
  std::sort(train.begin(), train.end());
  return train;
}

std::string LearningFitName(const std::string& network, std::int64_t divisor) {
  return fmt::format("{}, learning curve 1/{}", network, divisor);
}

void AddLearningPoint(const std::string& name, std::int64_t train_samples,
                      const RegressionMetrics& held_out, std::vector<LearningCurve>& curves) {
  auto curve = std::find_if(curves.begin(), curves.end(),
                            [&](const LearningCurve& each) { return each.name == name; });
  if (curve == curves.end()) curve = curves.insert(curves.end(), LearningCurve{name, {}});
  curve->points.push_back({train_samples, held_out.mape_percent, held_out.kendall_tau});
}

}  // namespace neuroshard
