#include "kernels/machine/local_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace neuroshard {
namespace {

using ::testing::HasSubstr;

TEST(LocalAddressTest, LoopbackIsItsOwnNetwork) {
  const LocalAddress local = FindLocalAddress("127.0.0.1", "").value();
  EXPECT_EQ(ToText(local.address), "127.0.0.1:0");
  EXPECT_EQ(local.network.ToText(), "127.0.0.0/8");
  EXPECT_EQ(local.interface, "lo");
  EXPECT_THAT(NetworkProperties(local),
              ::testing::ElementsAre(::testing::Pair("network", "127.0.0.0/8"),
                                     ::testing::Pair("network_address", "127.0.0.1"),
                                     ::testing::Pair("network_interface", "lo")));
  LocalAddress ipv6 = local;
  ipv6.address = *ParseSocketAddress("[fd00::7]:42");
  EXPECT_EQ(NetworkProperties(ipv6).at("network_address"), "fd00::7");
  EXPECT_EQ(FindLocalAddress("", "lo").value().network.ToText(), "127.0.0.0/8");
  EXPECT_EQ(FindLocalAddress("192.0.2.1", "").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(FindLocalAddress("", "nosuch0").status()), HasSubstr("nosuch0"));
}

}  // namespace
}  // namespace neuroshard
