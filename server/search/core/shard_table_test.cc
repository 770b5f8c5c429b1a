#include "server/search/core/shard_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/base/random.h"
#include "common/base/stop_signal.h"
#include "common/domain/memory_use.h"
#include "server/cost/shard_features.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/random_plan_request.h"

namespace neuroshard {
namespace {

class ShardTableTest : public ::testing::Test {
 protected:
  Random random_{5};
  PlanRequest request_ = testing::RandomPlanRequest(random_);
  BoundCostModel model_ = testing::BoundTo(request_, testing::ConcaveCostModel());
  NeverStop stop_;
  SearchContext context_{request_, model_, stop_, nullptr};
  ShardTable shards_{context_};
};

// A model that is not additive charges a rank for what its shards share: alone a shard pays for it,
// beside others it does not.
TEST_F(ShardTableTest, WithRulesAShardCostsWhatItAddsToTheMeanRank) {
  ShardTable beside(context_, CompiledRules(request_, TypeSet::All()));
  std::vector<float> mean(static_cast<std::size_t>(model_.representation_width()), 0.0F);
  std::vector<int> whole;
  for (int t = 0; t < std::ssize(request_.tables); ++t) {
    const std::int64_t dim = request_.tables[static_cast<std::size_t>(t)].embedding_dim;
    ASSERT_EQ(shards_.Whole(t, dim), beside.Whole(t, dim));
    whole.push_back(beside.Whole(t, dim));
  }
  shards_.PredictNew();
  beside.PredictNew();
  const float ranks = static_cast<float>(request_.topology.num_ranks());
  for (const int id : whole) {
    for (std::size_t w = 0; w < mean.size(); ++w) mean[w] += beside.phi(id)[w] / ranks;
  }
  const auto cost_ms = [&](const std::vector<float>& sum) {
    ComputeCost cost;
    model_.ComputeCosts(sum, std::span(&cost, 1), std::vector<int>{0});
    return cost.total_ms;
  };
  for (const int id : whole) {
    std::vector<float> sum = mean;
    for (std::size_t w = 0; w < sum.size(); ++w) sum[w] += beside.phi(id)[w];
    EXPECT_NEAR(beside.shard_cost_ms(id), cost_ms(sum) - cost_ms(mean), 1e-5);
    EXPECT_FLOAT_EQ(shards_.shard_cost_ms(id),
                    cost_ms({beside.phi(id), beside.phi(id) + mean.size()}));
    EXPECT_LT(beside.shard_cost_ms(id), shards_.shard_cost_ms(id));
  }
}

// Blocks in buckets are those of the plans.
TEST_F(ShardTableTest, BucketsAreNotCut) {
  PlanRequest request = request_;
  request.tables.resize(1);
  request.tables[0].num_embeddings = 12 * 7;
  TableRule& rule = request.constraints.tables.emplace_back();
  rule.tables = {0};
  rule.row_multiple = 7;
  SearchContext context(request, model_, stop_, nullptr);
  ShardTable in_buckets(context, CompiledRules(request, TypeSet::All()));
  for (const int ranks : {1, 3, 5, 12}) {
    const UnitShards shards = in_buckets.Shards(0, ShardingType::kRowWise, 4, ranks);
    const std::vector<Block> blocks = RowWiseBlocks(12 * 7, ranks, {.multiple = 7});
    for (int i = 0; i < ranks; ++i) {
      const ShardLayout layout{ShardingType::kRowWise, ComputeKernel::kFused, ranks};
      EXPECT_EQ(in_buckets.bytes(shards.at(i)),
                ShardMemory(request, request.tables[0], layout,
                            blocks[static_cast<std::size_t>(i)].size, 4)
                    .total_bytes());
    }
  }
}

// Blocks in proportion are those of the plans, whatever the number of kinds of ranks.
TEST_F(ShardTableTest, BlocksInProportionAreThoseOfTheirRanks) {
  PlanRequest request = request_;
  request.tables.resize(1);
  request.tables[0].num_embeddings = 101 * 7;
  request.topology.devices = std::vector<Device>(12, {.memory_bytes = 1 << 30});
  for (std::size_t r = 0; r < 12; ++r) {
    request.topology.devices[r].compute_speed = 1 + static_cast<double>(r % 5);
  }
  TableRule& rule = request.constraints.tables.emplace_back();
  rule.tables = {0};
  rule.row_multiple = 7;
  rule.row_proportion = RowProportion::kSpeed;
  SearchContext context(request, model_, stop_, nullptr);
  const CompiledRules rules(request, TypeSet::All());
  ShardTable ragged(context, rules);
  const UnitShards shards = ragged.Shards(0, ShardingType::kRowWise, 4, 12);
  EXPECT_EQ(ragged.Shards(0, ShardingType::kRowWise, 4, 12), shards);
  const UnitShards of_8 = ragged.Shards(0, ShardingType::kRowWise, 8, 12);
  const std::vector<Block> blocks = RowWiseBlocks(101 * 7, 12, rules.row_cut(0));
  const ShardLayout layout = LayoutIn({}, ShardingType::kRowWise, 12, rules.row_cut(0));
  std::int64_t most_bytes = 0;
  for (int i = 0; i < 12; ++i) {
    const auto bytes = [&](std::int64_t cols) {
      return ShardMemory(request, request.tables[0], layout,
                         blocks[static_cast<std::size_t>(i)].size, cols)
          .total_bytes();
    };
    EXPECT_EQ(ragged.bytes(shards.at(i)), bytes(4));
    EXPECT_EQ(ragged.bytes(of_8.at(i)), bytes(8));
    most_bytes = std::max(most_bytes, bytes(4));
  }
  EXPECT_EQ(ragged.bytes(shards.full), most_bytes);
  // Other types, and tables without the rule, are cut as ever.
  EXPECT_EQ(ragged.Shards(0, ShardingType::kTableRowWise, 4, 2).ragged, nullptr);
}

// Rows by place, and everything about the shard there as if it were asked for by itself.
TEST_F(ShardTableTest, ShardsAreTheBlocksOfTheirType) {
  for (int t = 0; t < static_cast<int>(request_.tables.size()); ++t) {
    const Table& table = request_.tables[static_cast<std::size_t>(t)];
    for (const auto& word : kWords<ShardingType>) {
      const ShardingType type = word.value;
      const bool one_place = SpreadOf(type) == Spread::kRank;
      for (const int ranks : {1, 2, 3, 7}) {
        if ((one_place && ranks > 1) || (type == ShardingType::kRowWiseSubset && ranks < 2)) {
          continue;
        }
        const UnitShards shards = shards_.Shards(t, type, table.embedding_dim, ranks);
        shards_.PredictNew();
        ASSERT_EQ(shards.count, ranks);
        std::vector<Block> rows(static_cast<std::size_t>(ranks), {0, table.num_embeddings});
        if (type == ShardingType::kRowWiseSubset) {
          rows = EvenBlocks(table.num_embeddings, ranks);
        } else if (CutsRows(type)) {
          rows = CeilBlocks(table.num_embeddings, ranks);
        }
        const ShardLayout layout{type, KernelOf(type), CutsRows(type) ? ranks : 1};
        for (int i = 0; i < ranks; ++i) {
          const int id = shards.at(i);
          const std::int64_t size = rows[static_cast<std::size_t>(i)].size;
          const ShardFeatures features = FeaturesOf(table, layout, size, table.embedding_dim);
          std::vector<float> phi(shards_.width());
          CommLoad load;
          ComputeCost cost;
          model_.Represent({&features, 1}, phi, {&load, 1});
          model_.ComputeCosts(phi, {&cost, 1});
          EXPECT_EQ(std::vector<float>(shards_.phi(id), shards_.phi(id) + shards_.width()), phi);
          EXPECT_EQ(shards_.load(id).forward, load.forward);
          EXPECT_EQ(shards_.shard_cost_ms(id), cost.total_ms);
          EXPECT_EQ(shards_.cols(id), table.embedding_dim);
          EXPECT_EQ(shards_.bytes(id),
                    ShardMemory(request_, table, layout, size, table.embedding_dim).total_bytes());
        }
      }
    }
  }
}

// Shards found from those in another residency are those that are asked for, and kinds of shards
// are all of them.
TEST_F(ShardTableTest, ShardsOfOneResidencyAreFoundFromAnother) {
  PlanRequest request = request_;
  request.tables[0].num_embeddings = 101 * 7;
  request.topology.devices = std::vector<Device>(8, {.memory_bytes = 1 << 30});
  for (std::size_t r = 0; r < 8; ++r) {
    request.topology.devices[r].compute_speed = 1 + static_cast<double>(r % 3);
  }
  request.topology.host_memory_bytes = {std::int64_t{1} << 40};
  TableRule& rule = request.constraints.tables.emplace_back();
  rule.tables = {0};
  rule.row_proportion = RowProportion::kSpeed;
  SearchContext context(request, model_, stop_, nullptr);
  const CompiledRules rules(request, TypeSet::All());
  ASSERT_GT(rules.residencies().size(), 2U);
  ShardTable shards(context, rules);
  for (const int table : {0, 1}) {
    for (const auto& word : kWords<ShardingType>) {
      const int ranks = SpreadOf(word.value) == Spread::kRank ? 1 : 8;
      for (const std::int64_t cols : {3, 8}) {
        const UnitShards on_device = shards.Shards(table, word.value, cols, ranks);
        for (int r = 0; r < static_cast<int>(rules.residencies().size()); ++r) {
          const UnitShards then = shards.InResidency(on_device, r);
          EXPECT_EQ(then, shards.Shards(table, word.value, cols, ranks, r));
          EXPECT_EQ(shards.InResidency(then, 0), on_device);
        }
        if (on_device.ragged != nullptr) continue;
        std::vector<int> ids;
        on_device.ForEachKind(
            [&](int id, int count) { ids.insert(ids.end(), static_cast<std::size_t>(count), id); });
        ASSERT_EQ(std::ssize(ids), ranks);
        for (int i = 0; i < ranks; ++i) {
          EXPECT_EQ(ids[static_cast<std::size_t>(i)], on_device.at(i));
        }
      }
    }
  }
}

TEST_F(ShardTableTest, EachShardIsPredictedOnceAndKeepsItsId) {
  const std::int64_t dim = request_.tables[0].embedding_dim;
  const int whole = shards_.Whole(0, dim);
  EXPECT_EQ(shards_.Shards(0, ShardingType::kTableWise, dim, 1).full, whole);
  const UnitShards rows = shards_.Shards(0, ShardingType::kRowWise, dim, 2);
  shards_.PredictNew();
  const int known = shards_.size();
  for (int i = 0; i < 3000; ++i) {  // the look-up grows
    const int id = shards_.Shards(0, ShardingType::kTableRowWise, 1 + i % 50, 2 + i / 50).full;
    EXPECT_GE(id, known);
  }
  EXPECT_EQ(shards_.Whole(0, dim), whole);
  EXPECT_EQ(shards_.Shards(0, ShardingType::kRowWise, dim, 2), rows);
  shards_.PredictNew();
  shards_.PredictNew();
  EXPECT_EQ(context_.statistics().compute_evaluations, shards_.size());
}

}  // namespace
}  // namespace neuroshard
