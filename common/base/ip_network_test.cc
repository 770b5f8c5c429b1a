#include "common/base/ip_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace neuroshard {
namespace {

using ::testing::HasSubstr;

bool Holds(const std::string& network, const std::string& address) {
  return IpNetwork::Parse(network).value().Contains(ParseSocketAddress(address).value().get());
}

TEST(IpNetworkTest, HoldsTheAddressesThatShareItsPrefix) {
  EXPECT_TRUE(Holds("10.0.0.0/8", "10.255.0.1:1"));
  EXPECT_FALSE(Holds("10.0.0.0/8", "11.0.0.0:1"));
  EXPECT_TRUE(Holds("10.1.2.128/25", "10.1.2.128:1"));
  EXPECT_FALSE(Holds("10.1.2.128/25", "10.1.2.127:1"));
  EXPECT_TRUE(Holds("192.0.2.7", "192.0.2.7:80"));
  EXPECT_FALSE(Holds("192.0.2.7", "192.0.2.6:80"));
  EXPECT_TRUE(Holds("0.0.0.0/0", "8.8.8.8:1"));
  EXPECT_FALSE(Holds("0.0.0.0/0", "[fd00::1]:1"));
  EXPECT_TRUE(Holds("fd00::/8", "[fd12::1]:1"));
  EXPECT_FALSE(Holds("fd00::/8", "[fe00::1]:1"));
  EXPECT_TRUE(Holds("::/0", "[fe00::1]:1"));
}

TEST(IpNetworkTest, AnIpv4AddressInsideIpv6IsTheSameAddress) {
  EXPECT_TRUE(Holds("10.0.0.0/8", "[::ffff:10.0.0.1]:1"));
  EXPECT_FALSE(Holds("127.0.0.0/8", "[::ffff:10.0.0.1]:1"));
}

TEST(IpNetworkTest, TextIsReadAndWritten) {
  for (const char* text : {"10.0.0.0/8", "0.0.0.0/0", "fd00::/8", "::1/128", "192.0.2.7/32"}) {
    EXPECT_EQ(IpNetwork::Parse(text).value().ToText(), text);
  }
  EXPECT_THAT(Message(IpNetwork::Parse("10.0.0.1/8").status()), HasSubstr("10.0.0.0/8?"));
  for (const char* text : {"", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0/8", "host/8",
                           "::/129", "10.0.0.0/8x", "fd00::/8/8"}) {
    EXPECT_EQ(IpNetwork::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(IpNetworkTest, ANetworkAroundAnInterfacesAddress) {
  const auto around = [](const char* address, const char* mask) {
    return IpNetwork::Around(ParseSocketAddress(address)->get(), ParseSocketAddress(mask)->get())
        .value()
        .ToText();
  };
  EXPECT_EQ(around("10.1.2.3:0", "255.255.240.0:0"), "10.1.0.0/20");
  EXPECT_EQ(around("10.1.2.3:0", "255.255.255.255:0"), "10.1.2.3/32");
  EXPECT_EQ(around("[fd00::1:2]:0", "[ffff:ffff::]:0"), "fd00::/32");
}

TEST(SocketAddressTest, OnlyNumbersAreAddresses) {
  for (const char* text : {"127.0.0.1:80", "[::1]:65535"}) {
    EXPECT_EQ(ToText(ParseSocketAddress(text).value()), text);
  }
  for (const char* text : {"", ":", "localhost:80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
                           "::1:80", "[::1]", "[]:1"}) {
    EXPECT_FALSE(ParseSocketAddress(text).ok()) << text;
  }
}

}  // namespace
}  // namespace neuroshard
