#include "server/pretrain/data/standardisation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace neuroshard {

Standardisation MeasureColumns(std::span<const float> rows, std::int64_t columns,
                               const std::vector<char>& used) {
  const auto width = static_cast<std::size_t>(columns);
  const double count = static_cast<double>(std::count(used.begin(), used.end(), 1));
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

}  // namespace neuroshard
