#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "client/sweep/sampling.h"

namespace neuroshard {
namespace {

CommSweepConfig SmallCommConfig() {
  CommSweepConfig config;
  config.seed = 3;
  config.num_samples = 100;
  config.num_ranks = {2, 4};
  config.batch_sizes = {512};
  return config;
}

TEST(CommSamplingTest, EveryPlacementIsMeasuredInBothDirections) {
  const std::vector<CommSample> samples = MakeCommSamples(SmallCommConfig());
  ASSERT_EQ(samples.size(), 400u);
  std::set<std::string> ids;
  for (std::size_t i = 0; i < samples.size(); i += 2) {
    const CommSample& backward = samples[i];
    const CommSample& forward = samples[i + 1];
    EXPECT_EQ(backward.direction, CommDirection::kBackward);
    EXPECT_EQ(forward.direction, CommDirection::kForward);
    EXPECT_EQ(backward.dim_sums, forward.dim_sums);
    EXPECT_TRUE(backward.start_offsets_ms.empty());
    ids.insert(backward.sample_id);
    ids.insert(forward.sample_id);
  }
  EXPECT_EQ(ids.size(), samples.size());
  EXPECT_EQ(samples[0].sample_id, "m000000b");
  EXPECT_EQ(samples[0].dim_sums.size(), 2u);
  EXPECT_EQ(samples[399].dim_sums.size(), 4u);
}

TEST(CommSamplingTest, OffsetsAreWholeUnitsFromZeroAndBelowTheBound) {
  CommSweepConfig config = SmallCommConfig();
  config.start_offset_unit_ms = 0.25;
  double largest_ms = 0;
  for (const CommSample& sample : MakeCommSamples(config)) {
    if (sample.direction == CommDirection::kBackward) continue;
    ASSERT_EQ(sample.start_offsets_ms.size(), sample.dim_sums.size());
    EXPECT_EQ(*std::min_element(sample.start_offsets_ms.begin(), sample.start_offsets_ms.end()),
              0.0);
    for (const double offset_ms : sample.start_offsets_ms) {
      EXPECT_EQ(std::fmod(offset_ms, 0.25), 0.0);
      largest_ms = std::max(largest_ms, offset_ms);
    }
  }
  EXPECT_LE(largest_ms, 18 * 0.25);  // s is at most 19, its draws at most 18
  EXPECT_GT(largest_ms, 10 * 0.25);
}

TEST(CommSamplingTest, TotalsComeFromTheConfiguredTables) {
  CommSweepConfig config = SmallCommConfig();
  config.dims = {4};
  for (const CommSample& sample : MakeCommSamples(config)) {
    const std::int64_t total =
        std::accumulate(sample.dim_sums.begin(), sample.dim_sums.end(), std::int64_t{0});
    EXPECT_GE(total, 10 * 4);
    EXPECT_LE(total, 59 * 4);
  }
}

TEST(CommSamplingTest, WithoutRandomPlacementRanksAreBalanced) {
  CommSweepConfig config = SmallCommConfig();
  config.max_random_placement = 0;
  for (const CommSample& sample : MakeCommSamples(config)) {
    const auto [least, most] = std::minmax_element(sample.dim_sums.begin(), sample.dim_sums.end());
    EXPECT_LE(*most - *least, 128) << sample.sample_id;  // one widest table
  }
}

TEST(CommSamplingTest, WithRandomPlacementBalanceVaries) {
  double worst = 0;
  for (const CommSample& sample : MakeCommSamples(SmallCommConfig())) {
    const auto [least, most] = std::minmax_element(sample.dim_sums.begin(), sample.dim_sums.end());
    worst = std::max(worst, static_cast<double>(*most - *least));
  }
  EXPECT_GT(worst, 256);
}

TEST(CommSamplingTest, SameConfigSameSamplesAndOtherSeedOthers) {
  CommSweepConfig config = SmallCommConfig();
  const auto first = MakeCommSamples(config);
  EXPECT_EQ(first, MakeCommSamples(config));
  config.seed = 4;
  EXPECT_NE(first, MakeCommSamples(config));
}

TEST(CommSamplingTest, BatchSizesVaryByPlacementAndLeaveItAlone) {
  CommSweepConfig config = SmallCommConfig();
  const auto plain = MakeCommSamples(config);
  config.batch_sizes = {256, 512};
  auto varied = MakeCommSamples(config);
  int large = 0;
  for (std::size_t i = 0; i < varied.size(); i += 2) {
    EXPECT_EQ(varied[i].batch_size, varied[i + 1].batch_size);
    if (varied[i].batch_size == 512) ++large;
    varied[i].batch_size = varied[i + 1].batch_size = 512;
  }
  EXPECT_EQ(varied, plain);
  EXPECT_GT(large, 70);
  EXPECT_LT(large, 130);
}

TEST(CommSamplingTest, OtherCollectivesOfAPlacementMoveAsManyColumnsAndLeaveTheAllToAllsAlone) {
  CommSweepConfig config = SmallCommConfig();
  const auto all_to_alls = MakeCommSamples(config);
  config.collectives = {Collective::kAllToAll, Collective::kReduceScatter, Collective::kAllGather,
                        Collective::kAllReduce};
  const auto samples = MakeCommSamples(config);
  ASSERT_EQ(samples.size(), 5 * all_to_alls.size() / 2);
  std::vector<CommSample> kept;
  std::vector<CommSample> gathers;
  int with_offsets = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const CommSample& sample = samples[i];
    if (sample.collective == Collective::kAllToAll) {
      kept.push_back(sample);
      continue;
    }
    if (sample.collective == Collective::kAllGather) gathers.push_back(sample);
    const CommSample& placement = samples[i / 5 * 5];
    EXPECT_EQ(sample.batch_size, placement.batch_size);
    const std::int64_t total =
        std::accumulate(placement.dim_sums.begin(), placement.dim_sums.end(), std::int64_t{0});
    for (const std::int64_t columns : sample.dim_sums) {
      EXPECT_EQ(columns, sample.dim_sums.front());
      EXPECT_EQ(columns % 4, 0);
    }
    const std::int64_t spread =
        std::accumulate(sample.dim_sums.begin(), sample.dim_sums.end(), std::int64_t{0});
    EXPECT_GE(spread, total);
    EXPECT_LT(spread, total + 4 * static_cast<std::int64_t>(sample.dim_sums.size()));
    if (!sample.start_offsets_ms.empty()) ++with_offsets;
  }
  EXPECT_EQ(kept, all_to_alls);
  EXPECT_GT(with_offsets, 240);  // of 600
  EXPECT_LT(with_offsets, 360);
  EXPECT_EQ(samples[4].sample_id, "m000000a");

  config.collectives = {Collective::kAllGather};
  EXPECT_EQ(MakeCommSamples(config), gathers);
}

TEST(CommSamplingTest, AnOffsetBoundOfOneMeansNoOffsets) {
  CommSweepConfig config = SmallCommConfig();
  config.max_start_offset = 2;
  for (const CommSample& sample : MakeCommSamples(config)) {
    for (const double offset_ms : sample.start_offsets_ms) EXPECT_EQ(offset_ms, 0.0);
  }
}

TEST(CommSamplingTest, APlacementsAllToAllsHaveOneTypeAndAreOtherwiseTheSame) {
  CommSweepConfig config;
  config.num_samples = 60;
  config.num_ranks = {2};
  config.batch_sizes = {64, 128};
  config.collectives = {Collective::kAllToAll, Collective::kAllGather};
  const std::vector<CommSample> plain = MakeCommSamples(config);
  config.wire_dtypes = {DataType::kFp32, DataType::kFp16, DataType::kBf16};
  const std::vector<CommSample> samples = MakeCommSamples(config);
  ASSERT_EQ(samples.size(), plain.size());
  std::map<DataType, int> counts;
  for (std::size_t i = 0; i < samples.size(); i += 3) {
    EXPECT_EQ(samples[i].wire_dtype, samples[i + 1].wire_dtype);
    EXPECT_EQ(samples[i].element_bytes, ElementBits(samples[i].wire_dtype) / 8);
    EXPECT_EQ(samples[i + 2].wire_dtype, DataType::kFp32) << "an all_gather";
    ++counts[samples[i].wire_dtype];
    for (std::size_t j = i; j < i + 3; ++j) {
      CommSample without = samples[j];
      without.wire_dtype = DataType::kFp32;
      without.element_bytes = 4;
      EXPECT_EQ(without, plain[j]);
    }
  }
  for (const DataType dtype : config.wire_dtypes) EXPECT_GT(counts[dtype], 8) << ToText(dtype);
}

TEST(InputDistSamplingTest, PlacesEveryTableWholeOrCut) {
  CommSweepConfig config;
  config.num_samples = 60;
  config.num_ranks = {2, 4};
  config.min_tables = 3;
  config.max_tables = 9;
  config.batch_sizes = {64, 128};
  config.input_dist = InputDistSweepConfig{{1, 10}, 0.5};
  const std::vector<CommSample> samples = MakeCommSamples(config);
  ASSERT_EQ(samples.size(), 120U);
  EXPECT_EQ(samples, MakeCommSamples(config));
  int all_whole = 0;
  int all_cut = 0;
  int weighted = 0;
  for (const CommSample& sample : samples) {
    ASSERT_TRUE(sample.input_dist.has_value());
    const InputDistSample& input = *sample.input_dist;
    std::int64_t whole = 0;
    double ids = input.cut_ids;
    for (std::size_t rank = 0; rank < sample.dim_sums.size(); ++rank) {
      EXPECT_EQ(sample.dim_sums[rank], 0);
      EXPECT_EQ(input.whole_features[rank] == 0, input.whole_ids[rank] == 0);
      whole += input.whole_features[rank];
      ids += input.whole_ids[rank];
    }
    const std::int64_t tables = whole + input.cut_features;
    EXPECT_GE(tables, 3);
    EXPECT_LE(tables, 9);
    EXPECT_GE(ids, static_cast<double>(tables));
    EXPECT_LE(ids, static_cast<double>(10 * tables));
    all_whole += input.cut_features == 0;
    all_cut += whole == 0;
    weighted += input.weighted;
  }
  EXPECT_GT(all_whole, 20);
  EXPECT_GT(all_cut, 20);
  EXPECT_LT(all_whole + all_cut, 115);
  EXPECT_NEAR(weighted, 60, 25);
}

}  // namespace
}  // namespace neuroshard
