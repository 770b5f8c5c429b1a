#include "server/networks/universal_comm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/base/random.h"
#include "server/cost/comm_features.h"
#include "server/cost/volume_equivalent.h"
#include "server/networks/testing/universal_fixture.h"

namespace neuroshard {
namespace {

using Row = std::vector<float>;

UniversalComm CommOf(const ModelFixture& fixture) {
  return UniversalComm(*fixture.manifest.comm, *fixture.manifest.trained_on,
                       fixture.files.at(fixture.manifest.comm->file));
}

UniversalComm SomeComm(const UniversalFixtureOptions& options = {}) {
  return CommOf(MakeUniversalFixture(options));
}

// Ranks on hosts of these sizes.
PricingConditions On(const std::vector<int>& host_sizes) {
  PricingConditions conditions;
  conditions.num_ranks = 0;
  for (const int size : host_sizes) {
    conditions.hosts.push_back({conditions.num_ranks, size});
    conditions.num_ranks += size;
    conditions.ranks_per_host = std::max(conditions.ranks_per_host, size);
  }
  return conditions;
}

Row Forward(const CommModel& comm, const Row& loads, const Row& offsets) {
  Row cost(loads.size());
  comm.ForwardCosts(loads, offsets, cost);
  return cost;
}

Row Backward(const CommModel& comm, const Row& loads) {
  Row cost(loads.size());
  comm.BackwardCosts(loads, cost);
  return cost;
}

Row RandomLoads(std::size_t ranks, Random& random) {
  Row loads(ranks);
  for (float& load : loads) load = static_cast<float>(random.Below(4000));
  return loads;
}

// The document's formula, once more: a member of the file on features of its own.
double Naive(const ModelFixture& fixture, int member, CollectiveKind kind,
             const CommFeatureRow& features, double wait_ms) {
  const auto& layers = fixture.manifest.comm->layers;
  const TensorFile& file = fixture.files.at(fixture.manifest.comm->file);
  const auto values = [&](const std::string& name) { return file.tensors.at(name).values; };
  std::vector<double> x;
  for (std::size_t i = 0; i < features.size(); ++i) {
    x.push_back((features[i] - values("feature_mean")[i]) / values("feature_std")[i]);
  }
  for (std::size_t layer = 0; layer + 1 < layers.size(); ++layer) {
    const std::string name = fmt::format("member.{}.layer.{}", member, layer);
    std::vector<double> y;
    for (std::size_t o = 0; o < static_cast<std::size_t>(layers[layer + 1]); ++o) {
      double sum = values(name + ".bias")[o];
      for (std::size_t k = 0; k < x.size(); ++k) {
        sum += values(name + ".weight")[o * x.size() + k] * x[k];
      }
      const bool last = layer + 2 == layers.size();
      const bool first_half = 2 * o < static_cast<std::size_t>(layers[layer + 1]);
      y.push_back(last ? sum : first_half ? std::max(sum, 0.0) : std::min(sum, 0.0));
    }
    x = y;
  }
  const std::string prefix = fmt::format("member.{}", member);
  const std::size_t c = static_cast<std::size_t>(kind);
  return values(prefix + ".wait_scale")[c] * wait_ms + values(prefix + ".floor_ms")[c] +
         std::exp(std::clamp(x[0], -20.0, 12.0));
}

// Of the members that price, those with the numbers 0 and 1.
double MeanOfNaive(const ModelFixture& fixture, CollectiveKind kind, const CommFeatureRow& features,
                   double wait_ms) {
  return (Naive(fixture, 0, kind, features, wait_ms) + Naive(fixture, 1, kind, features, wait_ms)) /
         2;
}

TEST(UniversalCommTest, CostsAreTheDefinitionForManyRankCountsAndHosts) {
  const ModelFixture fixture = MakeUniversalFixture({});
  const auto model = CommOf(fixture);
  Random random(1);
  for (const std::vector<int>& hosts :
       {std::vector<int>{2}, {1, 1}, {4, 4}, {3, 1, 5}, {16, 16, 16, 16}}) {
    PricingConditions conditions = On(hosts);
    conditions.global_batch_size = 2048;
    const auto comm = model.Bind(conditions).value();
    const std::size_t ranks = static_cast<std::size_t>(conditions.num_ranks);
    // Several placements at once, more rows than the networks take at a time.
    const Row loads = RandomLoads(3 * ranks, random);
    Row offsets(loads.size());
    for (float& offset : offsets) offset = static_cast<float>(10 * random.UniformReal());
    const Row forward_ms = Forward(*comm, loads, offsets);
    const Row backward_ms = Backward(*comm, loads);
    for (std::size_t begin = 0; begin < loads.size(); begin += ranks) {
      std::vector<double> bytes;
      std::vector<double> offsets_ms;
      for (std::size_t r = begin; r < begin + ranks; ++r) {
        bytes.push_back(2048.0 * 4 * loads[r]);
        offsets_ms.push_back(offsets[r]);
      }
      std::vector<CommFeatureRow> rows(ranks);
      std::vector<double> wait_ms(ranks);
      const CommLayout layout(conditions.num_ranks, conditions.hosts);
      for (const bool forward : {true, false}) {
        const CollectiveKind kind =
            forward ? CollectiveKind::kAllToAllForward : CollectiveKind::kAllToAllBackward;
        CommFeaturesOf(layout, kind, bytes, forward ? offsets_ms : std::vector<double>(), rows,
                       wait_ms);
        for (std::size_t r = 0; r < ranks; ++r) {
          const double expected = MeanOfNaive(fixture, kind, rows[r], wait_ms[r]);
          EXPECT_NEAR((forward ? forward_ms : backward_ms)[begin + r], expected, 1e-5 * expected);
        }
      }
    }
  }
}

TEST(UniversalCommTest, PermutingRanksOnAHostOrWholeHostsPermutesCosts) {
  const auto comm = SomeComm().Bind(On({3, 3})).value();
  Random random(2);
  const Row loads = RandomLoads(6, random);
  const Row offsets = {0, 3, 1, 7, 2, 0.5};
  const Row cost = Forward(*comm, loads, offsets);
  for (const std::vector<std::size_t>& order :
       {std::vector<std::size_t>{2, 0, 1, 3, 5, 4}, {3, 4, 5, 0, 1, 2}, {5, 3, 4, 1, 0, 2}}) {
    Row permuted_loads;
    Row permuted_offsets;
    for (const std::size_t r : order) {
      permuted_loads.push_back(loads[r]);
      permuted_offsets.push_back(offsets[r]);
    }
    const Row permuted = Forward(*comm, permuted_loads, permuted_offsets);
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(permuted[i], cost[order[i]], 1e-5 * cost[order[i]]);
    }
  }
}

// Up to far outside anything that a sample had.
TEST(UniversalCommTest, CostsRiseWithEveryRanksBytesAndHaveAFloor) {
  const ModelFixture fixture = MakeUniversalFixture({.seed = 7});
  const auto model = CommOf(fixture);
  const auto& floor_ms =
      fixture.files.at("comm.safetensors").tensors.at("member.0.floor_ms").values;
  Random random(3);
  for (const std::vector<int>& hosts : {std::vector<int>{2}, {8}, {4, 2, 2}, {8, 8, 8, 8}}) {
    const PricingConditions conditions = On(hosts);
    const auto comm = model.Bind(conditions).value();
    const std::size_t ranks = static_cast<std::size_t>(conditions.num_ranks);
    for (int trial = 0; trial < 20; ++trial) {
      Row loads = RandomLoads(ranks, random);
      const Row offsets(ranks, 0.0F);
      const Row before = Forward(*comm, loads, offsets);
      const Row before_backward = Backward(*comm, loads);
      loads[random.Below(ranks)] *= static_cast<float>(1 << random.Below(20));
      const Row after = Forward(*comm, loads, offsets);
      const Row after_backward = Backward(*comm, loads);
      for (std::size_t r = 0; r < ranks; ++r) {
        EXPECT_GE(after[r], before[r] * (1 - 1e-6F));
        EXPECT_GE(after_backward[r], before_backward[r] * (1 - 1e-6F));
        EXPECT_TRUE(std::isfinite(after[r]));
      }
    }
    const Row nothing(ranks, 0.0F);
    for (const float cost : Forward(*comm, nothing, nothing)) EXPECT_GT(cost, floor_ms[0]);
    for (const float cost : Backward(*comm, nothing)) EXPECT_GT(cost, floor_ms[1]);
  }
}

TEST(UniversalCommTest, TakesManyRanksAndNotMore) {
  const auto model = SomeComm();
  PricingConditions conditions = On({16384});
  const auto comm = model.Bind(conditions).value();
  const Row loads(16384, 100.0F);
  for (const float cost : Backward(*comm, loads)) EXPECT_TRUE(cost > 0 && std::isfinite(cost));
  EXPECT_EQ(model.Bind(On({16385})).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(UniversalCommTest, HostsCountUnlessTheSamplesHadOneAlone) {
  const Row loads = {10, 2000, 300, 4};
  const auto both = SomeComm();
  EXPECT_NE(Backward(*both.Bind(On({2, 2})).value(), loads),
            Backward(*both.Bind(On({4})).value(), loads));
  const auto one = SomeComm({.max_hosts = 1});
  EXPECT_EQ(Backward(*one.Bind(On({2, 2})).value(), loads),
            Backward(*one.Bind(On({4})).value(), loads));
}

ShardFeatures Shard(ShardingType type, std::int64_t rows, std::int64_t cols) {
  ShardFeatures shard;
  shard.rows = shard.table_rows = rows;
  shard.cols = cols;
  shard.layout.type = type;
  return shard;
}

TEST(UniversalCommTest, CutRowsAndReplicasAreAllToAllColumnsByTheRatioOfTheirCollectives) {
  const ModelFixture fixture = MakeUniversalFixture({});
  PricingConditions conditions = On({2, 2});
  conditions.global_batch_size = 4096;
  const auto comm = CommOf(fixture).Bind(conditions).value();
  std::vector<CommFeatureRow> rows(4);
  std::vector<double> wait_ms(4);
  const auto cost = [&](CollectiveKind kind) {
    CommFeaturesOf(CommLayout(4, conditions.hosts), kind, std::vector<double>(4, 128.0 * 4096 * 4),
                   {}, rows, wait_ms);
    return MeanOfNaive(fixture, kind, rows[0], 0);
  };
  const double scatter =
      cost(CollectiveKind::kReduceScatter) / cost(CollectiveKind::kAllToAllForward);
  const double gather = cost(CollectiveKind::kAllGather) / cost(CollectiveKind::kAllToAllBackward);
  const double reduce = cost(CollectiveKind::kAllReduce) / cost(CollectiveKind::kAllToAllBackward);
  EXPECT_GT(std::abs(scatter - 1), 0.01);  // the test can tell

  EXPECT_EQ(comm->Load(Shard(ShardingType::kColumnWise, 100, 16)),
            (CommLoad{16, 16, {.whole_rows = true}}));
  const CommLoad row_wise = comm->Load(Shard(ShardingType::kRowWise, 100, 16));
  EXPECT_NEAR(row_wise.forward, 16 * scatter, 1e-4);
  EXPECT_NEAR(row_wise.backward, 16 * gather, 1e-4);
  EXPECT_EQ(row_wise.kinds, (ShardKinds{.cut_rows = true}));
  const CommLoad replica = comm->Load(Shard(ShardingType::kDataParallel, 8192, 16));
  EXPECT_EQ(replica.kinds, (ShardKinds{.replicas = true}));
  EXPECT_EQ(replica.forward, 0);
  EXPECT_NEAR(replica.backward, 32 * reduce, 1e-4);
}

TEST(UniversalCommTest, CollectivesThatNobodyMeasuredKeepTheVolume) {
  const auto model = SomeComm({.collectives = {"all_to_all_forward", "all_to_all_backward"}});
  const PricingConditions conditions = On({4});
  const auto comm = model.Bind(conditions).value();
  for (const ShardingType type :
       {ShardingType::kTableWise, ShardingType::kRowWise, ShardingType::kDataParallel}) {
    const ShardFeatures shard = Shard(type, 1 << 20, 16);
    EXPECT_EQ(comm->Load(shard), VolumeEquivalent(conditions, shard));
  }
  const CommSetup setup = comm->SetupOf({.whole_rows = true, .cut_rows = true, .replicas = true});
  EXPECT_EQ(setup.forward_ms, 0);
  EXPECT_EQ(setup.backward_ms, 0);
}

TEST(UniversalCommTest, EveryCollectiveOfAStageTakesWhatItTakesForNothing) {
  const ModelFixture fixture = MakeUniversalFixture({});
  const PricingConditions conditions = On({2, 2});
  const auto comm = CommOf(fixture).Bind(conditions).value();
  std::vector<CommFeatureRow> rows(4);
  std::vector<double> wait_ms(4);
  const auto idle = [&](CollectiveKind kind) {
    CommFeaturesOf(CommLayout(4, conditions.hosts), kind, std::vector<double>(4), {}, rows,
                   wait_ms);
    return MeanOfNaive(fixture, kind, rows[0], 0);
  };
  const double exchange = idle(CollectiveKind::kAllToAllForward);
  const double return_exchange = idle(CollectiveKind::kAllToAllBackward);
  const double scatter = idle(CollectiveKind::kReduceScatter);
  const double gather = idle(CollectiveKind::kAllGather);
  const double reduce = idle(CollectiveKind::kAllReduce);
  const auto expect = [&](const ShardKinds& kinds, double forward_ms, double backward_ms) {
    EXPECT_NEAR(comm->SetupOf(kinds).forward_ms, forward_ms, 1e-5);
    EXPECT_NEAR(comm->SetupOf(kinds).backward_ms, backward_ms, 1e-5);
  };
  expect({}, 0, 0);
  expect({.whole_rows = true}, 0, 0);
  expect({.whole_rows = true, .cut_rows = true}, scatter, gather);
  expect({.whole_rows = true, .replicas = true}, 0, reduce);
  expect({.cut_rows = true, .replicas = true}, scatter - exchange,
         gather + reduce - return_exchange);
  expect({.replicas = true}, -exchange, reduce - return_exchange);
}

TEST(UniversalCommTest, IntervalsHoldTheCostAndAreWiderWhereMembersDisagree) {
  ModelFixture fixture = MakeUniversalFixture({});
  const auto comm = CommOf(fixture).Bind(On({4})).value();
  fixture.manifest.comm->members = 1;
  const auto alone = CommOf(fixture).Bind(On({4})).value();
  EXPECT_TRUE(SomeComm({.has_intervals = false}).Bind(On({4})).value()->Intervals({}).empty());
  const Row loads = {100, 200, 300, 400};
  const Row offsets = {0, 1, 2, 3};
  const Row forward_ms = Forward(*comm, loads, offsets);
  const Row backward_ms = Backward(*comm, loads);
  std::vector<RankComm> ranks;
  for (std::size_t r = 0; r < 4; ++r) {
    ranks.push_back({{loads[r], loads[r]}, offsets[r], forward_ms[r], backward_ms[r]});
  }
  const auto intervals = comm->Intervals(ranks);
  const auto of_one = alone->Intervals(ranks);
  ASSERT_EQ(intervals.size(), 4u);
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_LT(intervals[r].forward.low_ms, forward_ms[r]);
    EXPECT_GT(intervals[r].forward.high_ms, forward_ms[r]);
    EXPECT_GT(intervals[r].backward.high_ms, of_one[r].backward.high_ms);
  }
}

TEST(UniversalCommTest, AnIntervalIsTheWidestOfThoseOfTheCollectivesThatAPlacementHas) {
  ModelFixture fixture = MakeUniversalFixture({.members = 1});
  fixture.manifest.comm->interval = IntervalManifest{0.9, 1, {1}, {0.2}};
  fixture.manifest.comm->intervals = {{"all_to_all_forward", {0.9, 1, {1}, {0.1}}},
                                      {"all_gather", {0.9, 1, {1}, {0.1}, {2, 8}, {3, 1}}},
                                      {"all_reduce", {0.9, 1, {1}, {0.25}}}};
  const auto comm = CommOf(fixture).Bind(On({2})).value();
  // ln(high / cost) forward and backward, where one rank has `kinds` and the other nothing.
  const auto widths = [&](const ShardKinds& kinds) {
    std::vector<RankComm> ranks = {{.load = {.kinds = kinds}}, {}};
    for (RankComm& rank : ranks) rank.forward_ms = rank.backward_ms = 1;
    const auto intervals = comm->Intervals(ranks);
    return std::pair{std::log(intervals[1].forward.high_ms),
                     -std::log(intervals[1].backward.low_ms)};
  };
  const auto expect = [&](const ShardKinds& kinds, double forward, double backward) {
    EXPECT_NEAR(widths(kinds).first, forward, 1e-12);
    EXPECT_NEAR(widths(kinds).second, backward, 1e-12);
  };
  expect({}, 0.1, 0.2);
  expect({.whole_rows = true}, 0.1, 0.2);
  expect({.cut_rows = true}, 0.2, 0.3);  // nobody says anything of reduce_scatter
  expect({.replicas = true}, 0.1, 0.25);
  expect({.whole_rows = true, .replicas = true}, 0.1, 0.25);
  expect({.whole_rows = true, .cut_rows = true, .replicas = true}, 0.2, 0.3);
  // Where nothing stands for the others, the all-to-all does.
  fixture.manifest.comm->interval.reset();
  fixture.manifest.comm->intervals["all_to_all_backward"] = {0.9, 1, {1}, {0.15}};
  const auto without = CommOf(fixture).Bind(On({2})).value();
  const std::vector<RankComm> cut = {{.load = {.kinds = {.cut_rows = true}}, .forward_ms = 1},
                                     {.forward_ms = 1}};
  EXPECT_NEAR(without->Intervals(cut)[0].forward.high_ms, std::exp(0.1), 1e-12);
}

}  // namespace
}  // namespace neuroshard
