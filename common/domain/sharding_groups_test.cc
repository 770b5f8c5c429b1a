#include "common/domain/sharding_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "common/base/random.h"

namespace neuroshard {
namespace {

constexpr GroupRanks kAlternating = GroupRanks::kAlternating;
constexpr GroupRanks kContiguous = GroupRanks::kContiguous;

Topology Cluster(int hosts, int ranks_per_host) {
  Topology topology;
  for (int host = 0; host < hosts; ++host) {
    for (int rank = 0; rank < ranks_per_host; ++rank) {
      topology.devices.push_back({.host = host, .memory_bytes = 1000});
    }
  }
  topology.bandwidths.intra_host_bytes_per_s = 300e9;
  topology.bandwidths.inter_host_bytes_per_s = 25e9;
  return topology;
}

std::vector<int> RanksOf(int world, int size, GroupRanks ranks, int group) {
  std::vector<int> all;
  for (int place = 0; place < size; ++place) {
    all.push_back(RankOfGroup(world, size, ranks, group, place));
  }
  return all;
}

std::vector<int> HostSizes(const Topology& topology) {
  std::vector<int> sizes;
  for (const HostRanks& host : topology.hosts()) sizes.push_back(host.count);
  return sizes;
}

// The example in DMPCollection's documentation, and the same with use_inter_host_allreduce.
TEST(ShardingGroupsTest, RanksAreTorchRecs) {
  EXPECT_EQ(RanksOf(8, 4, kAlternating, 0), (std::vector<int>{0, 2, 4, 6}));
  EXPECT_EQ(RanksOf(8, 4, kAlternating, 1), (std::vector<int>{1, 3, 5, 7}));
  EXPECT_EQ(RanksOf(8, 4, kContiguous, 1), (std::vector<int>{4, 5, 6, 7}));
}

TEST(ShardingGroupsTest, EachRankIsInOneGroup) {
  for (const GroupRanks ranks : {kAlternating, kContiguous}) {
    for (const int size : {1, 2, 3, 4, 6, 8, 12, 24}) {
      std::set<int> seen;
      for (int group = 0; group < 24 / size; ++group) {
        for (const int rank : RanksOf(24, size, ranks, group)) seen.insert(rank);
      }
      EXPECT_EQ(seen.size(), 24U);
      EXPECT_EQ(*seen.rbegin(), 23);
    }
  }
}

TEST(ShardingGroupsTest, AGroupHasItsRanksOfItsHosts) {
  const Topology cluster = Cluster(4, 8);
  EXPECT_EQ(HostSizes(TopologyOfGroup(cluster, 8, kAlternating).value()),
            (std::vector<int>{2, 2, 2, 2}));
  EXPECT_EQ(HostSizes(TopologyOfGroup(cluster, 8, kContiguous).value()), (std::vector<int>{8}));
  EXPECT_EQ(HostSizes(TopologyOfGroup(cluster, 16, kContiguous).value()), (std::vector<int>{8, 8}));
  EXPECT_EQ(HostSizes(TopologyOfGroup(cluster, 2, kAlternating).value()),
            (std::vector<int>{1, 1}));  // on every second host
  EXPECT_EQ(HostSizes(TopologyOfGroup(cluster, 2, kContiguous).value()), (std::vector<int>{2}));
  EXPECT_EQ(TopologyOfGroup(cluster, 32, kAlternating).value(), cluster);
  EXPECT_EQ(TopologyOfGroup(cluster, 32, kContiguous).value(), cluster);
}

TEST(ShardingGroupsTest, AHostsMemoryIsSharedByItsGroups) {
  Topology cluster = Cluster(2, 4);
  cluster.host_memory_bytes = {4000, 4000};
  cluster.ssd_bytes = {40'000, 40'000};
  EXPECT_EQ(TopologyOfGroup(cluster, 4, kAlternating)->host_memory_bytes,
            (std::vector<std::int64_t>{2000, 2000}));
  EXPECT_EQ(TopologyOfGroup(cluster, 4, kAlternating)->ssd_bytes,
            (std::vector<std::int64_t>{20'000, 20'000}));
  EXPECT_EQ(TopologyOfGroup(cluster, 4, kContiguous)->host_memory_bytes,
            (std::vector<std::int64_t>{4000}));
}

TEST(ShardingGroupsTest, PodsAreThoseOfTheGroupsHosts) {
  Topology cluster = Cluster(4, 2);
  cluster.pod_size = 2;
  EXPECT_EQ(TopologyOfGroup(cluster, 4, kAlternating)->pod_size, 2);
  EXPECT_EQ(TopologyOfGroup(cluster, 2, kAlternating)->pod_size, 1);  // a rank of each pod
  EXPECT_EQ(TopologyOfGroup(cluster, 4, kContiguous)->pod_size, 2);
  EXPECT_EQ(TopologyOfGroup(cluster, 2, kContiguous)->pod_size, 1);
  Topology six = Cluster(6, 1);
  six.pod_size = 3;
  EXPECT_FALSE(TopologyOfGroup(six, 2, kContiguous).ok());  // hosts 2 and 3 are of two pods
}

TEST(ShardingGroupsTest, OnePlanIsForAllGroups) {
  EXPECT_FALSE(TopologyOfGroup(Cluster(2, 4), 3, kAlternating).ok());
  // Hosts of 6: ranks 0-3, 4-7, 8-11 are 4, 2 + 2 and 4.
  EXPECT_FALSE(TopologyOfGroup(Cluster(2, 6), 4, kContiguous).ok());
  EXPECT_TRUE(TopologyOfGroup(Cluster(2, 6), 4, kAlternating).ok());
  Topology mixed = Cluster(2, 4);
  for (int rank = 4; rank < 8; ++rank) mixed.devices[rank].memory_bytes = 2000;
  EXPECT_FALSE(TopologyOfGroup(mixed, 4, kContiguous).ok());
  EXPECT_TRUE(TopologyOfGroup(mixed, 4, kAlternating).ok());
}

TEST(SyncBytesTest, AreWeightsAndStateOfTheFullestRankWithoutReplicasOfThemThoseOffTheDevice) {
  PlanRequest request;
  request.topology = Cluster(1, 2);
  request.optimizer = Optimizer::kRowwiseAdagrad;
  request.memory.rule = MemoryRule::kWeightsOnly;
  for (const char* name : {"a", "b", "c"}) {
    Table table;
    table.name = name;
    table.num_embeddings = 100;
    table.embedding_dim = 8;
    request.tables.push_back(table);
  }
  request.tables[1].weight_dtype = DataType::kFp16;
  Plan plan;
  plan.tables = {
      {"a", "", ShardingType::kColumnWise, {}, {{0, 100, 0, 4, 0}, {0, 100, 4, 4, 1}}},
      {"b", "", ShardingType::kTableWise, ComputeKernel::kFusedUvmCaching, {{0, 100, 0, 8, 1}}},
      {"c",
       "",
       ShardingType::kDataParallel,
       ComputeKernel::kDense,
       {{0, 100, 0, 8, 0}, {0, 100, 0, 8, 1}}}};
  const SyncBytes bytes = SyncBytesOf(request, plan);
  EXPECT_EQ(bytes.total, (100 * 4 * 4 + 100 * 4) + (100 * 8 * 2 + 100 * 4));
  EXPECT_EQ(bytes.off_device, 100 * 8 * 2 + 100 * 4);
}

// Rings step by step: as many as a host has of the replicas, each with its part of the bytes; ring
// k leaves each host by rank k's adapter. In 2 (n - 1) steps each rank passes on 1/n of the part.
// A link is busy as long as its bytes take; the busiest counts.
double RingsByHand(const std::vector<int>& host_of, double bytes, double intra, double inter) {
  const std::size_t n = host_of.size();
  if (n < 2) return 0;
  const std::size_t on_host = std::count(host_of.begin(), host_of.end(), host_of.front());
  std::vector<double> within(n), between(n);
  for (std::size_t ring = 0; ring < on_host; ++ring) {
    std::vector<std::size_t> order;
    for (std::size_t host = 0; host < n; host += on_host) {
      for (std::size_t i = 1; i <= on_host; ++i) order.push_back(host + (ring + i) % on_host);
    }
    for (std::size_t step = 0; step < 2 * (n - 1); ++step) {
      for (std::size_t i = 0; i < n; ++i) {
        const bool leaves = host_of[order[i]] != host_of[order[(i + 1) % n]];
        (leaves ? between : within)[order[i]] +=
            bytes / static_cast<double>(on_host) / static_cast<double>(n);
      }
    }
  }
  return 1e3 * std::max(*std::max_element(within.begin(), within.end()) / intra,
                        *std::max_element(between.begin(), between.end()) / inter);
}

TEST(SyncMsTest, IsARingAllReduceOverTheReplicas) {
  Random random(5);
  int rounds = 0;
  for (int round = 0; round < 300; ++round) {
    const int per_host = static_cast<int>(random.Between(1, 8));
    const Topology cluster = Cluster(static_cast<int>(random.Between(1, 6)), per_host);
    const int world = cluster.num_ranks();
    const int size = static_cast<int>(random.Between(1, world));
    const GroupRanks ranks = random.Below(2) == 0 ? kAlternating : kContiguous;
    if (!TopologyOfGroup(cluster, size, ranks).ok()) continue;
    double by_hand = 0;
    bool even = true;
    for (int place = 0; place < size; ++place) {
      std::vector<int> host_of;
      for (int group = 0; group < world / size; ++group) {
        host_of.push_back(RankOfGroup(world, size, ranks, group, place) / per_host);
      }
      const auto on_host = [&](int host) {
        return std::count(host_of.begin(), host_of.end(), host);
      };
      even = even && std::all_of(host_of.begin(), host_of.end(), [&](int host) {
               return on_host(host) == on_host(host_of.front());
             });
      if (even) by_hand = std::max(by_hand, RingsByHand(host_of, 1e9, 300e9, 25e9));
    }
    if (!even) continue;  // the smallest host's adapters are all that count
    EXPECT_NEAR(SyncMs(cluster, size, ranks, {1'000'000'000, 0}), by_hand, 1e-6)
        << world << " ranks of " << per_host << " in groups of " << size;
    ++rounds;
  }
  EXPECT_GT(rounds, 80);
}

TEST(SyncMsTest, RowsOffTheDeviceCrossTheLinkToTheHostTwice) {
  Topology cluster = Cluster(2, 4);
  cluster.bandwidths.host_to_device_bytes_per_s = 30e9;
  const double on_device_ms = SyncMs(cluster, 4, kContiguous, {600'000'000, 0});
  EXPECT_NEAR(SyncMs(cluster, 4, kContiguous, {600'000'000, 300'000'000}), on_device_ms + 2 * 10,
              1e-9);
}

TEST(SyncMsTest, FabricsHaveLatencyAndPodsHaveAHostsLinks) {
  Topology cluster = Cluster(2, 4);
  cluster.fabric = Fabric{"made up", {4, 300e9}, {10, 25e9}};
  // Two neighbours: 2 steps of 4 us, half of the bytes there and back.
  EXPECT_NEAR(SyncMs(cluster, 4, kAlternating, {300'000'000, 0}), 2 * 0.004 + 1.0, 1e-9);
  EXPECT_NEAR(SyncMs(cluster, 4, kContiguous, {25'000'000, 0}), 2 * 0.010 + 1.0, 1e-9);
  cluster.pod_size = 2;
  EXPECT_NEAR(SyncMs(cluster, 4, kContiguous, {300'000'000, 0}), 2 * 0.004 + 1.0, 1e-9);
  EXPECT_EQ(SyncMs(cluster, 8, kAlternating, {300'000'000, 300'000'000}), 0);
}

}  // namespace
}  // namespace neuroshard
