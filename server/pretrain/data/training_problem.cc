#include "server/pretrain/data/training_problem.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "common/base/positions.h"
#include "common/base/random.h"

namespace neuroshard {

Standardisation TrainingProblem::Measure(std::span<const std::int64_t> train) const {
  std::vector<char> used(static_cast<std::size_t>(num_rows()), 0);
  for (const std::int64_t sample : train) {
    for (auto i = sample_begin[sample]; i < sample_begin[sample + 1]; ++i) used[sample_rows[i]] = 1;
  }
  const std::size_t width = columns.size();
  const double count = static_cast<double>(std::ranges::count(used, 1));
  Standardisation result;
  for (std::size_t c = 0; c < width; ++c) {
    double sum = 0;
    float low = std::numeric_limits<float>::infinity();
    float high = -low;
    for (std::size_t r = 0; r < used.size(); ++r) {
      if (!used[r]) continue;
      const float value = rows[r * width + c];
      sum += value;
      low = std::min(low, value);
      high = std::max(high, value);
    }
    const double mean = sum / count;
    result.mean.push_back(static_cast<float>(mean));
    if (!(low < high)) {
      result.deviation.push_back(0);
      continue;
    }
    double squares = 0;
    for (std::size_t r = 0; r < used.size(); ++r) {
      if (!used[r]) continue;
      const double difference = rows[r * width + c] - mean;
      squares += difference * difference;
    }
    // The epsilon is NeuroShard's (section 3).
    result.deviation.push_back(static_cast<float>(std::sqrt(squares / (count - 1)) + 1e-6));
  }
  return result;
}

std::vector<float> Standardisation::Apply(std::span<const float> rows) const {
  std::vector<float> values(rows.size());
  for (std::size_t at = 0; at < rows.size(); ++at) {
    const std::size_t c = at % mean.size();
    if (deviation[c] > 0) values[at] = (rows[at] - mean[c]) / deviation[c];
  }
  return values;
}

std::string Standardisation::Constant(std::span<const std::string> names) const {
  std::string constant;
  for (std::size_t c = 0; c < deviation.size(); ++c) {
    if (deviation[c] == 0) constant += (constant.empty() ? "" : ", ") + names[c];
  }
  return constant;
}

TensorFile Standardisation::File() const {
  const auto columns = static_cast<std::int64_t>(mean.size());
  TensorFile file;
  file.tensors["feature_mean"] = {{columns}, mean};
  std::vector<float>& in_file = (file.tensors["feature_std"] = {{columns}, deviation}).values;
  std::replace(in_file.begin(), in_file.end(), 0.0f, 1.0f);
  return file;
}

void TrainingProblem::Standardise(Standardisation by) {
  standardisation = std::move(by);
  rows = standardisation.Apply(rows);
}

SampleSplit SplitSamples(std::int64_t num_samples, std::uint64_t seed) {
  std::vector<std::int64_t> order = Positions<std::int64_t>(num_samples);
  Random(seed).Shuffle(order);
  const std::int64_t held_out = std::max<std::int64_t>(1, num_samples / 10);
  const std::int64_t train = std::max<std::int64_t>(0, num_samples - 2 * held_out);
  const std::int64_t not_test = std::min(train + held_out, num_samples);
  const auto begin = order.begin();
  return {
      {begin, begin + train}, {begin + train, begin + not_test}, {begin + not_test, order.end()}};
}

}  // namespace neuroshard
