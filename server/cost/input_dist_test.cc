#include "server/cost/input_dist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/domain/plan.h"
#include "server/cost/cost_model.h"

namespace neuroshard {
namespace {

constexpr int kRanks = 4;
constexpr std::int64_t kSamplesOfRank = 6;

PricingConditions TwoHosts() {
  PricingConditions conditions;
  conditions.num_ranks = kRanks;
  conditions.ranks_per_host = 2;
  conditions.global_batch_size = kRanks * kSamplesOfRank;
  conditions.bandwidths.device_memory_bytes_per_s = 8e9;
  conditions.bandwidths.intra_host_bytes_per_s = 4e9;
  conditions.bandwidths.inter_host_bytes_per_s = 1e9;
  conditions.pipeline_type = PipelineType::kNone;
  return conditions;
}

Table SomeTable() {
  Table table;
  table.num_embeddings = 10;
  table.embedding_dim = 16;
  table.pooling_factor = 10;
  return table;
}

struct SentCase {
  std::string name;
  Table table;
  TablePlan plan;
};

// Row blocks of 10 rows over 4 ranks, and over 2.
const std::vector<Block> kFourBlocks = CeilBlocks(10, 4);

std::vector<SentCase> SentCases() {
  std::vector<SentCase> cases;
  const auto add = [&](std::string name, ShardingType type, std::vector<neuroshard::Shard> shards,
                       const Table& table = SomeTable()) {
    TablePlan plan;
    plan.sharding_type = type;
    plan.compute_kernel =
        type == ShardingType::kDataParallel ? ComputeKernel::kDense : ComputeKernel::kFused;
    plan.shards = std::move(shards);
    cases.push_back({std::move(name), table, std::move(plan)});
  };
  const auto shard = [](std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols,
                        int rank) {
    neuroshard::Shard s;
    s.row_offset = row;
    s.rows = rows;
    s.col_offset = col;
    s.cols = cols;
    s.rank = rank;
    return s;
  };
  const auto rows_over_all = [&] {
    std::vector<neuroshard::Shard> shards;
    for (int r = 0; r < kRanks; ++r) {
      const Block block = kFourBlocks[static_cast<std::size_t>(r)];
      shards.push_back(shard(block.offset, block.size, 0, 16, r));
    }
    return shards;
  };
  const std::vector<neuroshard::Shard> whole = {shard(0, 10, 0, 16, 2)};
  add("table_wise", ShardingType::kTableWise, whole);
  add("column_wise", ShardingType::kColumnWise,
      {shard(0, 10, 0, 4, 0), shard(0, 10, 4, 8, 3), shard(0, 10, 12, 4, 3)});
  add("table_column_wise", ShardingType::kTableColumnWise,
      {shard(0, 10, 0, 8, 2), shard(0, 10, 8, 8, 3)});
  add("row_wise", ShardingType::kRowWise, rows_over_all());
  add("row_wise_subset", ShardingType::kRowWiseSubset,
      {shard(0, 5, 0, 16, 1), shard(5, 5, 0, 16, 3)});
  add("table_row_wise", ShardingType::kTableRowWise,
      {shard(0, 5, 0, 16, 2), shard(5, 5, 0, 16, 3)});
  add("grid_shard", ShardingType::kGridShard,
      {shard(0, 5, 0, 8, 0), shard(5, 5, 0, 8, 1), shard(0, 5, 8, 8, 2), shard(5, 5, 8, 8, 3)});
  add("data_parallel", ShardingType::kDataParallel,
      {shard(0, 10, 0, 16, 0), shard(0, 10, 0, 16, 1), shard(0, 10, 0, 16, 2),
       shard(0, 10, 0, 16, 3)});
  Table weighted = SomeTable();
  weighted.weighted = true;
  add("weighted", ShardingType::kRowWise, rows_over_all(), weighted);
  Table features = SomeTable();
  features.features = {"f", "g", "h"};
  features.pooling_factor = 60;
  add("features", ShardingType::kRowWise, rows_over_all(), features);
  features.pooling_factors = {10, 20, 30};
  add("features of their own", ShardingType::kTableWise, whole, features);
  features.num_poolings = {2, 1, 3};
  features.pooling_factor = 10 * 2 + 20 * 1 + 30 * 3;
  add("several bags", ShardingType::kRowWise, rows_over_all(), features);
  features.feature_batch_sizes = {8, 24, 4};
  features.pooling_factor =
      (10 * 2 * 8 + 20 * 1 * 24 + 30 * 3 * 4) / double{kRanks * kSamplesOfRank};
  add("variable batch sizes", ShardingType::kTableWise, whole, features);
  Table unpooled = SomeTable();
  unpooled.kind = TableKind::kEmbedding;
  add("unpooled", ShardingType::kRowWise, rows_over_all(), unpooled);
  return cases;
}

using ByRanks = std::vector<std::vector<InputBytes>>;  // [sender][receiver]

// Draws the ids of every bag, one row after the other, and sends them.
ByRanks Sent(const SentCase& c) {
  ByRanks sent(kRanks, std::vector<InputBytes>(kRanks));
  if (c.plan.sharding_type == ShardingType::kDataParallel) return sent;
  const std::size_t num_features = std::max<std::size_t>(1, c.table.features.size());
  std::int64_t drawn = 0;
  for (std::size_t sender = 0; sender < kRanks; ++sender) {
    for (std::size_t f = 0; f < num_features; ++f) {
      const std::int64_t samples = c.table.feature_batch_sizes.empty()
                                       ? kSamplesOfRank
                                       : c.table.feature_batch_sizes[f] / kRanks;
      const std::int64_t bags =
          samples *
          (c.table.num_poolings.empty() ? 1 : static_cast<std::int64_t>(c.table.num_poolings[f]));
      const std::int64_t ids_of_bag =
          static_cast<std::int64_t>(c.table.pooling_factors.empty()
                                        ? c.table.pooling_factor / static_cast<double>(num_features)
                                        : c.table.pooling_factors[f]);
      for (std::int64_t bag = 0; bag < bags; ++bag) {
        for (const neuroshard::Shard& shard : c.plan.shards) {
          sent[sender][static_cast<std::size_t>(shard.rank)].lengths += 8;
        }
        for (std::int64_t i = 0; i < ids_of_bag; ++i) {
          const std::int64_t id = drawn++ % c.table.num_embeddings;
          for (const neuroshard::Shard& shard : c.plan.shards) {
            if (id < shard.row_offset || id >= shard.row_offset + shard.rows) continue;
            InputBytes& to = sent[sender][static_cast<std::size_t>(shard.rank)];
            to.ids += 8;
            if (c.table.weighted) to.weights += 4;
          }
        }
      }
    }
  }
  return sent;
}

TEST(InputBytesTest, AreWhatIsSentForEveryIdAndBag) {
  for (const SentCase& c : SentCases()) {
    const ShardLayout layout = LayoutOf(c.plan);
    std::vector<InputBytes> received(kRanks);
    for (const neuroshard::Shard& shard : c.plan.shards) {
      received[static_cast<std::size_t>(shard.rank)] +=
          InputBytesOf(FeaturesOf(c.table, layout, shard.rows, shard.cols), TwoHosts());
    }
    const ByRanks sent = Sent(c);
    for (std::size_t sender = 0; sender < kRanks; ++sender) {
      for (std::size_t r = 0; r < kRanks; ++r) {
        SCOPED_TRACE(c.name + " from " + std::to_string(sender) + " to " + std::to_string(r));
        EXPECT_NEAR(received[r].ids, sent[sender][r].ids, 1e-9);
        EXPECT_NEAR(received[r].lengths, sent[sender][r].lengths, 1e-9);
        EXPECT_NEAR(received[r].weights, sent[sender][r].weights, 1e-9);
      }
    }
  }
}

ShardFeatures AsShard(ShardingType type, int row_shards, std::int64_t rows) {
  ShardLayout layout;
  layout.type = type;
  layout.row_shards = row_shards;
  return FeaturesOf(SomeTable(), layout, rows, 16);
}

TEST(InputDistTest, IsNotPricedUnlessThePipelineIsStated) {
  PricingConditions conditions = TwoHosts();
  EXPECT_TRUE(InputDist::Of(conditions, {})->exposed());
  conditions.pipeline_type = PipelineType::kTrainSparseDist;
  EXPECT_FALSE(InputDist::Of(conditions, {})->exposed());
  conditions.pipeline_type = PipelineType::kTrainPrefetchSparseDist;
  EXPECT_FALSE(InputDist::Of(conditions, {})->exposed());
  conditions.pipeline_type = std::nullopt;
  EXPECT_FALSE(InputDist::Of(conditions, {}).has_value());
}

// 6 samples of each of 4 ranks, 10 ids and a length each: 528 bytes from each rank. Over links
// between hosts from two of them, at 1e6 bytes a ms; 4 passes over 2112 bytes at 8e6 a ms.
TEST(InputDistTest, TakesTheSlowerLinkAndThePassesOverMemory) {
  const InputDist ours = *InputDist::Of(TwoHosts(), {});
  EXPECT_FLOAT_EQ(ours.Ms(AsShard(ShardingType::kTableWise, 1, 10)),
                  2 * 528 / 1e6F + 4 * 2112 / 8e6F);
  // 5 of 10 rows: 240 bytes of ids and 48 of lengths; bucketized.
  EXPECT_FLOAT_EQ(ours.Ms(AsShard(ShardingType::kRowWiseSubset, 2, 5)),
                  2 * 288 / 1e6F + 5 * 1152 / 8e6F);
  EXPECT_EQ(ours.Ms(AsShard(ShardingType::kDataParallel, 1, 10)), 0);

  PricingConditions slow_within = TwoHosts();
  slow_within.bandwidths.intra_host_bytes_per_s = 1e8;
  EXPECT_FLOAT_EQ(InputDist::Of(slow_within, {})->Ms(AsShard(ShardingType::kTableWise, 1, 10)),
                  528 / 1e5F + 4 * 2112 / 8e6F);
  PricingConditions one_host = TwoHosts();
  one_host.ranks_per_host = 4;
  EXPECT_FLOAT_EQ(InputDist::Of(one_host, {})->Ms(AsShard(ShardingType::kTableWise, 1, 10)),
                  3 * 528 / 4e6F + 4 * 2112 / 8e6F);
  PricingConditions alone = TwoHosts();
  alone.num_ranks = alone.ranks_per_host = 1;
  EXPECT_EQ(InputDist::Of(alone, {})->Ms(AsShard(ShardingType::kTableWise, 1, 10)), 0);
}

TEST(InputDistTest, MeasurementsGoBeforeTheFormulaWhereTheyWereMade) {
  const MeasuredInputDist measured = {{{2, 0.5, 1, 3, 2}, {8, 1.5, 5, 7, 4}}, 2};
  const IntervalManifest interval = {0.9, 1, {1}, {std::log(2)}, {2, 8}, {1, 3}};
  const auto bound = [&](const PricingConditions& conditions) {
    return *InputDist::Of(conditions,
                          {.measured_input_dist = measured, .input_dist_interval = interval});
  };
  PricingConditions conditions = TwoHosts();  // 4 ranks: halfway from 2 to 8 in ln(ranks)
  const InputDist input_dist = bound(conditions);
  EXPECT_TRUE(input_dist.measured());
  EXPECT_FLOAT_EQ(input_dist.fixed_ms(), 1);
  EXPECT_NEAR(input_dist.Interval(3)->low_ms, 0.75, 1e-9);
  EXPECT_NEAR(input_dist.Interval(3)->high_ms, 12, 1e-9);
  EXPECT_FALSE(
      InputDist::Of(conditions, {.measured_input_dist = measured})->Interval(3).has_value());
  // 4 x 480 bytes of ids and 4 x 48 of lengths; half of the ids of half of the rows.
  EXPECT_FLOAT_EQ(input_dist.Ms(AsShard(ShardingType::kTableWise, 1, 10)),
                  (3 * 1920 + 3 * 192) / 1e6F);
  EXPECT_FLOAT_EQ(input_dist.Ms(AsShard(ShardingType::kRowWiseSubset, 2, 5)),
                  (5 * 960 + 3 * 192) / 1e6F);
  EXPECT_EQ(input_dist.Ms(AsShard(ShardingType::kDataParallel, 1, 10)), 0);

  conditions.num_ranks = 2;
  EXPECT_FLOAT_EQ(bound(conditions).fixed_ms(), 0.5);
  const auto is_formula = [&] {
    const InputDist formula = *InputDist::Of(conditions, {});
    const ShardFeatures shard = AsShard(ShardingType::kTableWise, 1, 10);
    return !bound(conditions).measured() && bound(conditions).fixed_ms() == 0 &&
           bound(conditions).Ms(shard) == formula.Ms(shard) && !bound(conditions).Interval(3);
  };
  conditions.num_ranks = 16;
  EXPECT_TRUE(is_formula()) << "more ranks than were measured";
  conditions.num_ranks = 4;
  conditions.hosts.resize(3);
  EXPECT_TRUE(is_formula()) << "more hosts than were measured";
  conditions.hosts.clear();
  conditions.pipeline_type = std::nullopt;
  EXPECT_FALSE(InputDist::Of(conditions, {.measured_input_dist = measured}).has_value());
}

// phi of two entries, of which a rank costs the sum.
class TwoEntries final : public ComputeModel {
 public:
  int representation_width() const override { return 2; }
  void Represent(const PricingConditions& /*conditions*/, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      phi[2 * i] = static_cast<float>(shards[i].rows);
      phi[2 * i + 1] = static_cast<float>(shards[i].cols);
    }
  }
  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = {sums[2 * i] + sums[2 * i + 1], sums[2 * i], sums[2 * i + 1]};
    }
  }
};

TEST(InputDistTest, AddsTheShardsTimesToARanksTotalAlone) {
  PricingConditions conditions = TwoHosts();
  const auto bind = [&] {
    return BoundCostModel(conditions, {}, {}, std::make_shared<const TwoEntries>(),
                          CommOfOneRank());
  };
  const ShardFeatures whole = AsShard(ShardingType::kTableWise, 1, 10);
  const ShardFeatures half = AsShard(ShardingType::kRowWiseSubset, 2, 5);
  const std::vector<std::vector<ShardFeatures>> sets = {{whole, half}, {}, {half}};
  const BoundCostModel exposed = bind();
  conditions.pipeline_type = PipelineType::kTrainSparseDist;
  const BoundCostModel hidden = bind();
  conditions.pipeline_type = std::nullopt;
  const BoundCostModel unstated = bind();

  const auto costs = exposed.CostsOfSets(sets);
  const auto base = unstated.CostsOfSets(sets);
  const InputDist& input_dist = *exposed.input_dist();
  EXPECT_FALSE(unstated.input_dist().has_value());
  EXPECT_EQ(exposed.representation_width(), 3);
  EXPECT_EQ(hidden.representation_width(), 2);
  for (std::size_t s = 0; s < sets.size(); ++s) {
    float ms = 0;
    for (const ShardFeatures& shard : sets[s]) ms += input_dist.Ms(shard);
    EXPECT_EQ(costs[s].compute.total_ms, base[s].compute.total_ms + ms);
    EXPECT_EQ(costs[s].compute.forward_ms, base[s].compute.forward_ms);
    EXPECT_EQ(costs[s].compute.backward_ms, base[s].compute.backward_ms);
    EXPECT_EQ(hidden.CostsOfSets(sets)[s].compute.total_ms, base[s].compute.total_ms);
  }
}

}  // namespace
}  // namespace neuroshard
