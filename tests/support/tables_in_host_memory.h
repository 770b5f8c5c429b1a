// Tables in host memory beside the same tables in the device's: random traces through both.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/random.h"
#include "kernels/api/embedding_op.h"
#include "kernels/api/testing/op_contents.h"
#include "kernels/cpu/row_cache.h"
#include "tests/support/op_beside_oracle.h"

namespace neuroshard::testing {

// The caches that the tables of an op have, as the rule says.
class CachesByRule {
 public:
  explicit CachesByRule(const EmbeddingOpSpec& spec) : spec_(spec) {
    for (const EmbeddingTableSpec& table : spec.tables) {
      auto& cache = caches_.emplace_back();
      if (table.kernel != ComputeKernel::kFusedUvmCaching) continue;
      cache.emplace(CacheSlots(table.rows, table.cache_load_factor));
    }
  }

  void Use(const std::vector<LookupBatch>& inputs) {
    for (std::size_t t = 0; t < inputs.size(); ++t) {
      if (!caches_[t]) continue;
      const std::vector<std::int64_t>& ids = inputs[t].ids;
      std::vector<std::uint64_t> places(ids.size()), missing(ids.size()), spare(ids.size());
      caches_[t]->Use(
          ids, places, missing, spare,
          static_cast<int>(std::bit_width(static_cast<std::uint64_t>(spec_.tables[t].rows))),
          [this](std::int64_t, std::int64_t evicted, std::int64_t) {
            if (evicted != kNoRow) ++evicted_;
          });
      outside_ += std::count_if(places.begin(), places.end(), [&](std::uint64_t place) {
        return static_cast<std::int64_t>(place) >= caches_[t]->slots();
      });
    }
  }

  void ExpectIn(EmbeddingOp& op) const {
    CacheCounts sum;
    for (std::size_t t = 0; t < caches_.size(); ++t) {
      if (!caches_[t]) continue;
      const auto rows = caches_[t]->slot_rows();
      EXPECT_EQ(ContentsOf(op)->SlotRows(static_cast<int>(t)),
                std::vector(rows.begin(), rows.end()))
          << "table " << t;
      sum.distinct_rows += caches_[t]->counts().distinct_rows;
      sum.missed_rows += caches_[t]->counts().missed_rows;
      sum.free_slots += caches_[t]->counts().free_slots;
    }
    EXPECT_EQ(op.Caches(), sum);
  }

  std::int64_t evicted() const { return evicted_; }
  // Lookups of rows that found no slot, because their batch used all of the set.
  std::int64_t outside() const { return outside_; }

 private:
  const EmbeddingOpSpec& spec_;
  std::vector<std::optional<RowCache>> caches_;
  std::int64_t evicted_ = 0, outside_ = 0;
};

// Outputs, weights and state are those of tables in the device's memory, to the bit, and the caches
// are as the rule says; with gradients that are multiplied by something in every other trace.
// create: StatusOr<std::unique_ptr<EmbeddingOp>>(const EmbeddingOpSpec&).
template <typename Create>
void CompareWithDeviceMemory(const Create& create, Optimizer optimizer,
                             std::span<const DataType> types, int traces) {
  Random random(41);
  std::int64_t evicted = 0, outside = 0;
  for (int trace = 0; trace < traces; ++trace) {
    const bool scaled = trace % 2 == 0;
    EmbeddingOpSpec plain;
    plain.optimizer = optimizer;
    plain.batch_size = random.Between(8, 30);
    plain.learning_rate = 0.1F;
    plain.seed = random.Next();
    const auto add = [&](std::int64_t rows, std::int64_t cols, PoolingMode mode) {
      plain.tables.push_back({.rows = rows,
                              .cols = cols,
                              .pooling_mode = mode,
                              .weight_dtype = types[random.Below(types.size())]});
    };
    for (std::int64_t t = random.Between(1, 2); t > 0; --t) {
      const PoolingMode mode = kWords<PoolingMode>[random.Below(3)].value;
      add(random.Between(1, 900), random.Between(1, 90),
          mode == PoolingMode::kMean && !scaled ? PoolingMode::kSum : mode);
    }
    // Beside the random ones: a cache of one set, one of all rows, none.
    add(700, 6, PoolingMode::kSum);
    add(90, 300, PoolingMode::kNone);
    add(60, 20, scaled ? PoolingMode::kMean : PoolingMode::kSum);
    EmbeddingOpSpec tiered = plain;
    for (EmbeddingTableSpec& table : tiered.tables) {
      table.kernel = ComputeKernel::kFusedUvmCaching;
      table.cache_load_factor = 0.01 + 0.99 * random.UniformReal();
    }
    tiered.tables.end()[-3].cache_load_factor = 0.02;
    tiered.tables.end()[-2].cache_load_factor = 1;
    tiered.tables.end()[-1].kernel = ComputeKernel::kFusedUvm;
    tiered.tables.end()[-1].cache_load_factor = 0;
    auto in_device = create(plain).value();
    auto op = create(tiered).value();
    CachesByRule caches(tiered);
    caches.ExpectIn(*op);
    for (int batch = 0; batch < 6; ++batch) {
      std::vector<LookupBatch> inputs;
      for (const EmbeddingTableSpec& table : plain.tables) {
        const bool weighted =
            scaled && table.pooling_mode != PoolingMode::kNone && random.Below(2) == 0;
        inputs.push_back(RandomLookups(random, table.rows, plain.batch_size, 12, weighted));
      }
      ASSERT_TRUE(in_device->SetInputs(inputs).ok());
      ASSERT_TRUE(op->SetInputs(inputs).ok());
      if (batch % 3 == 1) op->ForgetHostRows();
      caches.Use(inputs);
      if (batch != 3) {  // else backward fetches
        in_device->Forward();
        op->Forward();
        ASSERT_EQ(ContentsOf(*op)->Output(), ContentsOf(*in_device)->Output());
      }
      if (batch % 3 == 2) op->ForgetHostRows();
      in_device->Backward();
      op->Backward();
      caches.ExpectIn(*op);
      for (int t = 0; t < std::ssize(plain.tables); ++t) {
        ASSERT_EQ(ContentsOf(*op)->Weights(t), ContentsOf(*in_device)->Weights(t)) << "table " << t;
        ASSERT_EQ(ContentsOf(*op)->OptimizerState(t), ContentsOf(*in_device)->OptimizerState(t))
            << "table " << t;
      }
      if (batch != 2) continue;
      const std::vector<float> weights =
          RandomNumbers(random, plain.tables[0].rows * plain.tables[0].cols);
      ASSERT_TRUE(ContentsOf(*in_device)->SetWeights(0, weights).ok());
      ASSERT_TRUE(ContentsOf(*op)->SetWeights(0, weights).ok());
    }
    evicted += caches.evicted();
    outside += caches.outside();
  }
  EXPECT_GT(evicted, 0);
  EXPECT_GT(outside, 0);
}

}  // namespace neuroshard::testing
