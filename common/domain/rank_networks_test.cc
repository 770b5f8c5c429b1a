#include "common/domain/rank_networks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace neuroshard {
namespace {

MeasurementEnvironment On(const std::string& interface, const std::string& network) {
  MeasurementEnvironment environment;
  if (!interface.empty()) environment.properties["network_interface"] = interface;
  if (!network.empty()) environment.properties["network"] = network;
  return environment;
}

TEST(RankNetworksTest, RanksOfOneNetworkOrInterfaceAreNotWarnedOf) {
  using Ranks = std::vector<MeasurementEnvironment>;
  EXPECT_EQ(DifferentNetworks(Ranks{}), "");
  EXPECT_EQ(DifferentNetworks(Ranks{On("eno1", "10.0.0.0/24"), On("eth0", "10.0.0.0/24")}), "");
  EXPECT_EQ(DifferentNetworks(Ranks{On("eth0", "10.1.1.0/24"), On("eth0", "10.1.2.0/24")}), "");
  // What does not say is no other network.
  EXPECT_EQ(DifferentNetworks(Ranks{On("", ""), On("eth0", "10.1.2.0/24")}), "");
}

TEST(RankNetworksTest, RanksOfDifferentNetworksAreNamed) {
  const std::vector<MeasurementEnvironment> ranks = {
      On("eth0", "10.0.0.0/24"), On("eth0", "10.0.0.0/24"), On("ib0", "192.168.0.0/16")};
  EXPECT_EQ(DifferentNetworks(ranks),
            "the ranks of the group use different networks: 0, 1 over eth0 10.0.0.0/24; 2 over ib0 "
            "192.168.0.0/16");
}

TEST(RankNetworksTest, ANetworkJoinsGroupsThatWereApart) {
  const auto groups = GroupNetworks({{"a", "1"}, {"b", "2"}, {"c", "3"}, {"", ""}});
  EXPECT_EQ(groups.size(), 3u);
  EXPECT_EQ(GroupNetworks({{"a", "1"}, {"b", "2"}, {"a", "2"}, {"c", "3"}}).size(), 2u);
}

}  // namespace
}  // namespace neuroshard
