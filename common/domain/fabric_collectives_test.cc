#include "common/domain/fabric_collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace neuroshard {
namespace {

const Fabric kFabric{"made up", {4, 300e9}, {10, 25e9}};
// ms of so many bytes on either link
double Intra(double bytes) { return bytes / 300e6; }
double Inter(double bytes) { return bytes / 25e6; }

std::vector<HostRanks> Hosts(const std::vector<int>& counts) {
  std::vector<HostRanks> hosts;
  int first = 0;
  for (const int count : counts) {
    hosts.push_back({first, count});
    first += count;
  }
  return hosts;
}

std::vector<double> AllToAll(const std::vector<int>& counts, const std::vector<double>& bytes) {
  std::vector<double> ms(bytes.size());
  FabricCollectives(kFabric, Hosts(counts)).AllToAll(bytes, ms);
  return ms;
}

// Up to 8 hosts of up to 8 ranks, and bytes per peer of which some are 0.
struct Traffic {
  std::vector<int> counts;
  std::vector<double> bytes;
};

Traffic RandomTraffic(std::mt19937_64& random) {
  Traffic made;
  made.counts.resize(std::uniform_int_distribution<int>(1, 8)(random));
  for (int& count : made.counts) count = std::uniform_int_distribution<int>(1, 8)(random);
  made.bytes.resize(std::accumulate(made.counts.begin(), made.counts.end(), 0));
  for (double& each : made.bytes) {
    each = random() % 4 == 0 ? 0 : std::exp(std::uniform_real_distribution<>(0, 20)(random));
  }
  return made;
}

TEST(FabricAllToAllTest, OneHostTakesWhatItsFullestRankSends) {
  const double mb = 1e6;
  // 8 ranks, 3 steps of 4 us.
  for (const double ms : AllToAll({8}, {mb, 0, 5 * mb, mb, mb, mb, mb, 2 * mb})) {
    EXPECT_DOUBLE_EQ(ms, 0.012 + Intra(7 * 5 * mb));
  }
}

// The maintainers of nccl-tests on evenly loaded ranks of N hosts with an adapter each (issue 130):
// bus bandwidth is N / (N - 1) times an adapter's, the local part hides behind the network.
TEST(FabricAllToAllTest, EvenLoadsGetTheBusBandwidthThatNcclTestsExpect) {
  for (const int hosts : {2, 3, 16}) {
    const int n = hosts * 8;
    const double buffer = 4e9;
    const std::vector<double> ms =
        AllToAll(std::vector<int>(hosts, 8), std::vector<double>(n, buffer / n));
    const double bus_bytes_per_ms = buffer * (n - 1) / n / ms.front();
    EXPECT_NEAR(bus_bytes_per_ms / (25e6 * hosts / (hosts - 1) * (n - 1) / n), 1, 1e-3);
  }
}

TEST(FabricAllToAllTest, NoLinkCarriesMoreThanItCan) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const Traffic made = RandomTraffic(random);
    const std::vector<double> ms = AllToAll(made.counts, made.bytes);
    const std::vector<HostRanks> hosts = Hosts(made.counts);
    for (const HostRanks& host : hosts) {
      for (int r = host.first; r < host.first + host.count; ++r) {
        double from_host = 0;
        double from_others = 0;
        for (int p = 0; p < static_cast<int>(made.bytes.size()); ++p) {
          const bool near = p >= host.first && p < host.first + host.count;
          if (p != r) (near ? from_host : from_others) += made.bytes[p];
        }
        const double to_others =
            static_cast<double>(made.bytes.size() - host.count) * made.bytes[r];
        EXPECT_GE(ms[r] * (1 + 1e-9), Intra((host.count - 1) * made.bytes[r]));
        EXPECT_GE(ms[r] * (1 + 1e-9), Intra(from_host));
        EXPECT_GE(ms[r] * (1 + 1e-9), Inter(from_others));
        EXPECT_GE(ms[r] * (1 + 1e-9), Inter(to_others));
      }
    }
  }
}

TEST(FabricAllToAllTest, MoreBytesNeverTakeLessAndNothingCostsTheLatency) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 200; ++round) {
    Traffic made = RandomTraffic(random);
    const std::vector<double> before = AllToAll(made.counts, made.bytes);
    const std::vector<double> idle =
        AllToAll(made.counts, std::vector<double>(made.bytes.size(), 0));
    made.bytes[random() % made.bytes.size()] += 1e6;
    const std::vector<double> after = AllToAll(made.counts, made.bytes);
    for (std::size_t r = 0; r < before.size(); ++r) {
      EXPECT_GE(after[r], before[r]);
      EXPECT_GE(before[r], idle[r]);
      EXPECT_GE(idle[r], made.bytes.size() > 1 ? 0.004 : 0);
    }
  }
}

TEST(FabricAllToAllTest, PermutedRanksHavePermutedCosts) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    const Traffic made = RandomTraffic(random);
    const std::vector<HostRanks> hosts = Hosts(made.counts);
    std::vector<int> order(hosts.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    Traffic moved;
    std::vector<int> from;  // new rank -> old rank
    for (const int host : order) {
      moved.counts.push_back(hosts[host].count);
      std::vector<int> ranks(hosts[host].count);
      std::iota(ranks.begin(), ranks.end(), hosts[host].first);
      std::shuffle(ranks.begin(), ranks.end(), random);
      from.insert(from.end(), ranks.begin(), ranks.end());
    }
    for (const int rank : from) moved.bytes.push_back(made.bytes[rank]);
    const std::vector<double> before = AllToAll(made.counts, made.bytes);
    const std::vector<double> after = AllToAll(moved.counts, moved.bytes);
    for (std::size_t r = 0; r < from.size(); ++r) {
      EXPECT_NEAR(after[r], before[from[r]], 1e-9 * (1 + before[from[r]]));
    }
  }
}

TEST(FabricRingTest, BusBandwidthIsTheHostsAdaptersTogether) {
  const double bytes = 1e10;
  const FabricCollectives two(kFabric, Hosts({8, 8}));
  EXPECT_NEAR(two.ReduceScatter(bytes), Inter(bytes * 15 / 16 / 8), 0.1);
  const FabricCollectives uneven(kFabric, Hosts({8, 2}));
  EXPECT_NEAR(uneven.ReduceScatter(bytes), Inter(bytes * 9 / 10 / 2), 0.1);
  const FabricCollectives one(kFabric, Hosts({8}));
  EXPECT_NEAR(one.ReduceScatter(bytes), Intra(bytes * 7 / 8), 0.1);
  EXPECT_EQ(one.AllGather(bytes), one.ReduceScatter(bytes));
  EXPECT_EQ(one.AllReduce(bytes), 2 * one.ReduceScatter(bytes));
  EXPECT_NEAR(one.HostReduceScatter(bytes), one.ReduceScatter(bytes), 1e-9);
  EXPECT_NEAR(two.HostReduceScatter(bytes), Intra(bytes * 7 / 8) + Inter(bytes / 8 / 2), 0.1);
}

// Where nothing is between hosts of a pod, it is as one host with all of their ranks.
TEST(FabricPodTest, LinksWithinAPodAreAHosts) {
  const double bytes = 1e9;
  const FabricCollectives pods(kFabric, Hosts({4, 4, 4, 4}), 2);
  const FabricCollectives merged(kFabric, Hosts({8, 8}));
  EXPECT_EQ(pods.ReduceScatter(bytes), merged.ReduceScatter(bytes));
  const std::vector<double> sent(16, bytes / 16);
  std::vector<double> ms(16), expected(16);
  pods.AllToAll(sent, ms);
  merged.AllToAll(sent, expected);
  EXPECT_EQ(ms, expected);
  // Rows on 4 ranks of a host: there, then a ring of one rank of each host, through two adapters.
  EXPECT_NEAR(pods.HostReduceScatter(bytes),
              0.008 + Intra(bytes * 3 / 4) + 0.010 + Inter(bytes / 4 * 3 / 4 / 2), 1e-9);
  const FabricCollectives one(kFabric, Hosts({4, 4}), 2);
  EXPECT_NEAR(one.HostReduceScatter(bytes),
              0.008 + Intra(bytes * 3 / 4) + 0.004 + Intra(bytes / 4 / 2), 1e-9);
}

TEST(FabricRingTest, TimesRiseWithBytesFromTheLatencyOn) {
  for (const std::vector<int>& counts : {std::vector<int>{2}, {8}, {1, 1, 1}, {8, 3, 8}}) {
    const FabricCollectives collectives(kFabric, Hosts(counts));
    double before = 0.004;
    for (double bytes = 0; bytes < 1e10; bytes = 2 * bytes + 1) {
      EXPECT_GE(collectives.ReduceScatter(bytes), before);
      EXPECT_GE(collectives.HostReduceScatter(bytes), 0.004);
      before = collectives.ReduceScatter(bytes);
    }
  }
}

TEST(FabricTest, OneRankAloneWaitsForNobody) {
  EXPECT_EQ(AllToAll({1}, {1e9}), std::vector<double>{0});
  const FabricCollectives alone(kFabric, Hosts({1}));
  EXPECT_EQ(alone.AllReduce(1e9), 0);
  EXPECT_EQ(alone.HostReduceScatter(1e9), 0);
}

TEST(FabricTest, WhoComesEarlyWaitsForTheLast) {
  std::vector<double> ms = {5, 6, 7};
  AddWaiting(std::vector<float>{0, 2.5, 1}, ms);
  EXPECT_EQ(ms, (std::vector<double>{7.5, 6, 8.5}));
}

}  // namespace
}  // namespace neuroshard
