#include "server/pretrain/data/training_problem.h"

#include <algorithm>

#include "common/base/positions.h"
#include "common/base/random.h"

namespace neuroshard {

void TrainingProblem::Standardise(std::span<const std::int64_t> train,
                                  const Standardisation* given) {
  if (given != nullptr) {
    standardisation = *given;
  } else {
    std::vector<char> used(static_cast<std::size_t>(num_rows()), 0);
    for (const std::int64_t sample : train) {
      for (auto i = sample_begin[sample]; i < sample_begin[sample + 1]; ++i) {
        used[sample_rows[i]] = 1;
      }
    }
    standardisation = MeasureColumns(rows, num_columns(), used);
  }
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
