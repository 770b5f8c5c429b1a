// Representations of the shards of many tables, each distinct shape once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "common/domain/table.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// Add all shapes with Note, then call Represent once; shapes are referred to by the number that
// Note returned.
class ShardShapes {
 public:
  // `table` is the caller's number for the table; one table, one number.
  std::size_t Note(int table, const Table& of, const ShardLayout& layout, std::int64_t rows,
                   std::int64_t cols);

  void Represent(const BoundCostModel& model);

  std::span<const float> Phi(std::size_t shape) const {
    return std::span(phi_).subspan(shape * width_, width_);
  }
  const CommLoad& Load(std::size_t shape) const { return loads_[shape]; }

 private:
  using Shape =
      std::tuple<int, ShardingType, ComputeKernel, int, double, std::int64_t, std::int64_t>;

  std::map<Shape, std::size_t> number_of_;
  std::vector<ShardFeatures> features_;
  std::size_t width_ = 0;
  std::vector<float> phi_;
  std::vector<CommLoad> loads_;
};

}  // namespace neuroshard
