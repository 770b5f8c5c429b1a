// The lanes of a row as threads that really run side by side: what one lane of a loop cannot show
// is that all lanes take part in every exchange (else this hangs), that each of them does its own
// columns, and that nobody reads what another writes (under ThreadSanitizer).
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

#include "common/base/random.h"
#include "kernels/cuda/row_update.h"

namespace neuroshard::cuda {
namespace {

struct SharedLanes {
  explicit SharedLanes(int lanes) : meet(lanes), values(lanes) {}
  std::barrier<> meet;
  std::vector<float> values;
};

class ThreadLane {
 public:
  ThreadLane(SharedLanes& shared, int lane) : shared_(&shared), lane_(lane) {}
  int lane() const { return lane_; }
  int lanes() const { return static_cast<int>(shared_->values.size()); }
  float Sum(float value) const {
    shared_->values[lane_] = value;
    shared_->meet.arrive_and_wait();
    float sum = 0;
    for (const float one : shared_->values) sum += one;
    shared_->meet.arrive_and_wait();
    return sum;
  }
  void Agree() const { shared_->meet.arrive_and_wait(); }

 private:
  SharedLanes* shared_;
  int lane_;
};

struct OneLane {
  int lane() const { return 0; }
  int lanes() const { return 1; }
  float Sum(float value) const { return value; }
  void Agree() const {}
};

// One table and its sorted entries, with room for the partial sums of runs over several chunks.
struct Problem {
  Problem(std::int32_t row_vectors, Random& random) : vectors(row_vectors) {
    constexpr std::uint32_t kRows = 40;
    weights.resize(kRows * vectors * kVector, 0.25F);
    state.resize(kRows);
    for (std::uint32_t row = 0; row < kRows; ++row) {
      const std::int64_t length = row == 7 ? 100 : random.Between(0, 9);
      for (std::int64_t i = 0; i < length; ++i) {
        keys.push_back(row);
        occurrences.push_back({static_cast<std::uint32_t>(random.Between(0, kSamples - 1)), 0.5F});
      }
    }
    gradients.resize(kSamples * vectors * kVector);
    for (float& one : gradients) one = static_cast<float>(random.UniformReal() - 0.5);
    const std::int64_t partial = 2 * Chunks(static_cast<std::int64_t>(keys.size()));
    next_keys.resize(partial);
    next_filled.resize(partial);
    next_partials.resize(partial * vectors * kVector);
  }

  UpdateTable Table() {
    UpdateTable table;
    table.weights = weights.data();
    table.vectors = vectors;
    table.cols = vectors * kVector;
    table.state = state.data();
    table.entries = static_cast<std::int64_t>(keys.size());
    table.keys = keys.data();
    table.gradients = gradients.data();
    table.gradient_stride = std::int64_t{vectors} * kVector;
    table.occurrences = occurrences.data();
    table.next_keys = next_keys.data();
    table.next_filled = next_filled.data();
    table.next_partials = next_partials.data();
    return table;
  }

  // As a kernel does: all lanes of the group, chunk after chunk.
  template <int kVectorsPerLane>
  void RunOn(int lanes) {
    const UpdateTable table = Table();
    SharedLanes shared(lanes);
    std::vector<std::jthread> threads;
    for (int lane = 0; lane < lanes; ++lane) {
      threads.emplace_back([&, lane] {
        for (std::int64_t chunk = 0; chunk < Chunks(table.entries); ++chunk) {
          UpdateChunk<kVectorsPerLane, ScaledOccurrence>(table, {0.1F, 1e-8F}, chunk,
                                                         ThreadLane(shared, lane));
        }
      });
    }
  }

  static constexpr std::int64_t kSamples = 16;
  std::int32_t vectors;
  // Aligned as on a device: of whole vectors.
  struct Floats : std::vector<Float4> {
    void resize(std::int64_t count, float value = 0) {
      assign(count / kVector, Float4{value, value, value, value});
    }
    float* data() { return &std::vector<Float4>::data()->x; }
    float* begin() { return data(); }
    float* end() { return data() + static_cast<std::int64_t>(size()) * kVector; }
  };
  Floats weights, gradients, next_partials;
  std::vector<float> state;
  std::vector<std::uint32_t> keys, next_keys;
  std::vector<ScaledOccurrence> occurrences;
  std::vector<std::uint8_t> next_filled;
};

void ExpectClose(Problem::Floats& got, Problem::Floats& wanted) {
  for (std::int64_t i = 0; i < wanted.end() - wanted.begin(); ++i) {
    ASSERT_NEAR(got.begin()[i], wanted.begin()[i], 1e-5) << i;
  }
}

TEST(RowUpdateLanesTest, LanesSideBySideDoWhatOneLaneDoes) {
  const auto check = [](std::int32_t vectors, auto run) {
    Random same(vectors), as_before(vectors);
    Problem lanes(vectors, same), one(vectors, as_before);
    run(lanes);
    const UpdateTable table = one.Table();
    for (std::int64_t chunk = 0; chunk < Chunks(table.entries); ++chunk) {
      UpdateChunk<64, ScaledOccurrence>(table, {0.1F, 1e-8F}, chunk, OneLane{});
    }
    ExpectClose(lanes.weights, one.weights);
    ExpectClose(lanes.next_partials, one.next_partials);
    EXPECT_EQ(lanes.next_keys, one.next_keys);
    EXPECT_EQ(lanes.next_filled, one.next_filled);
    for (std::size_t i = 0; i < one.state.size(); ++i) {
      ASSERT_NEAR(lanes.state[i], one.state[i], 1e-5 * (1e-3 + one.state[i])) << i;
    }
  };
  check(8, [](Problem& problem) { problem.RunOn<1>(UpdateLanes(8)); });
  check(5, [](Problem& problem) { problem.RunOn<1>(UpdateLanes(5)); });     // lanes without columns
  check(45, [](Problem& problem) { problem.RunOn<2>(UpdateLanes(45)); });   // two vectors a lane
  check(40, [](Problem& problem) { problem.RunOn<16>(UpdateLanes(40)); });  // as the widest rows
}

}  // namespace
}  // namespace neuroshard::cuda
