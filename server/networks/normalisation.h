// z = (x - mean) / std, column by column.
#pragma once

#include <cstddef>
#include <vector>

#include "server/networks/safetensors.h"

namespace neuroshard {

// Mean and standard deviation of each column. Immutable.
class Normalisation {
 public:
  // "feature_mean" and "feature_std" of a file that CheckNetworkTensors has passed.
  explicit Normalisation(const TensorFile& file)
      : mean_(file.tensors.at("feature_mean").values),
        deviation_(file.tensors.at("feature_std").values) {}

  std::size_t size() const { return mean_.size(); }

  // In double: rows reach 10^9, where floats are 64 apart.
  float Apply(std::size_t column, double value) const {
    return static_cast<float>((value - mean_[column]) / deviation_[column]);
  }

 private:
  std::vector<float> mean_;
  std::vector<float> deviation_;
};

}  // namespace neuroshard
