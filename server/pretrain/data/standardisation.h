// Standardisation of features: (x - mean) / deviation over the training samples.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/networks/safetensors.h"

namespace neuroshard {

struct Standardisation {
  std::vector<float> mean;
  std::vector<float> deviation;  // 0: does not vary, so the network is to ignore the column

  // [n, columns] in; columns that do not vary become 0.
  std::vector<float> Apply(std::span<const float> rows) const;

  // The columns that do not vary, by name, comma-separated.
  std::string Constant(std::span<const std::string> names) const;

  // feature_mean and feature_std as a model's file has them: deviations of 1 instead of 0.
  TensorFile File() const;
};

// Over the rows [n, columns] that `used` marks.
Standardisation MeasureColumns(std::span<const float> rows, std::int64_t columns,
                               const std::vector<char>& used);

}  // namespace neuroshard
