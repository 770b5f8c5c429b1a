// Lays samples of a problem out for a pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/random.h"
#include "server/pretrain/fit/fit_batch.h"
#include "server/pretrain/fit/fit_problem.h"

namespace neuroshard {

// Keeps its memory from batch to batch. Not for several threads at once.
class BatchBuilder {
 public:
  // `problem` must outlive it.
  explicit BatchBuilder(const FitProblem& problem);

  // With `permutations`, ranks are permuted as the problem says.
  void Build(std::span<const std::int64_t> samples, Random* permutations, FitBatch& batch);

 private:
  std::int64_t PlaceOf(std::int64_t row, FitBatch& batch);
  void Permute(Random& random, FitBatch& batch);

  const FitProblem& problem_;
  // Of each row of the problem: its line in the batch of that number.
  std::vector<std::uint64_t> placed_in_;
  std::vector<std::int64_t> place_;
  std::uint64_t batch_number_ = 0;
  std::vector<std::int64_t> order_;
  std::vector<float> line_;
};

}  // namespace neuroshard
