#include "server/pretrain/fit/batch_builder.h"

#include <algorithm>
#include <numeric>

namespace neuroshard {
namespace {

void AppendLine(const std::vector<float>& from, std::int64_t line, std::int64_t width,
                std::vector<float>& to) {
  const auto begin = from.begin() + line * width;
  to.insert(to.end(), begin, begin + width);
}

}  // namespace

BatchBuilder::BatchBuilder(const FitProblem& problem) : problem_(problem) {
  const auto rows = problem.row_columns == 0
                        ? std::size_t{0}
                        : problem.rows.size() / static_cast<std::size_t>(problem.row_columns);
  placed_in_.assign(rows, 0);
  place_.resize(rows);
}

std::int64_t BatchBuilder::PlaceOf(std::int64_t row, FitBatch& batch) {
  const auto at = static_cast<std::size_t>(row);
  if (placed_in_[at] != batch_number_) {
    placed_in_[at] = batch_number_;
    place_[at] = batch.num_rows++;
    AppendLine(problem_.rows, row, problem_.row_columns, batch.row_values);
  }
  return place_[at];
}

void BatchBuilder::Build(std::span<const std::int64_t> samples, Random* permutations,
                         FitBatch& batch) {
  ++batch_number_;
  batch.num_rows = 0;
  batch.num_samples = static_cast<std::int64_t>(samples.size());
  batch.row_values.clear();
  batch.sample_values.clear();
  batch.row.clear();
  batch.begin.assign(1, 0);
  batch.targets.clear();
  batch.weights.clear();
  for (const std::int64_t sample : samples) {
    const auto at = static_cast<std::size_t>(sample);
    for (auto i = problem_.sample_begin[at]; i < problem_.sample_begin[at + 1]; ++i) {
      batch.row.push_back(PlaceOf(problem_.sample_rows[static_cast<std::size_t>(i)], batch));
    }
    batch.begin.push_back(static_cast<std::int64_t>(batch.row.size()));
    AppendLine(problem_.sample_values, sample, problem_.sample_columns, batch.sample_values);
    AppendLine(problem_.targets, sample, problem_.outputs, batch.targets);
    AppendLine(problem_.weights, sample, problem_.weight_columns(), batch.weights);
  }
  if (permutations != nullptr && problem_.permuted_ranks > 0) Permute(*permutations, batch);
}

void BatchBuilder::Permute(Random& random, FitBatch& batch) {
  const std::int64_t ranks = problem_.permuted_ranks;
  order_.resize(static_cast<std::size_t>(ranks));
  line_.resize(static_cast<std::size_t>(ranks));
  const auto reorder = [&](float* values) {
    for (std::size_t r = 0; r < order_.size(); ++r) line_[r] = values[order_[r]];
    std::copy(line_.begin(), line_.end(), values);
  };
  for (std::int64_t s = 0; s < batch.num_samples; ++s) {
    std::iota(order_.begin(), order_.end(), std::int64_t{0});
    random.Shuffle(order_);
    float* row = batch.row_values.data() + s * problem_.row_columns;
    for (std::int64_t block = 0; block < problem_.row_columns; block += ranks) reorder(row + block);
    reorder(batch.targets.data() + s * problem_.outputs);
    reorder(batch.weights.data() + s * problem_.weight_columns());
  }
}

}  // namespace neuroshard
