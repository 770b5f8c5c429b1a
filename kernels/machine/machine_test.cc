#include "kernels/machine/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace neuroshard {
namespace {

using ::testing::HasSubstr;

TEST(ProcFieldTest, FindsTheWholeKeyOnly) {
  constexpr std::string_view kText =
      "MemTotal:  100 kB\nMemAvailable:    42 kB\nmodel name\t: A: B\n";
  EXPECT_EQ(ProcField(kText, "MemAvailable"), "42 kB");
  EXPECT_EQ(ProcField(kText, "model name"), "A: B");
  EXPECT_EQ(ProcField(kText, "Available"), "");
  EXPECT_EQ(ProcField("", "x"), "");
}

TEST(ParseSizeWithSuffixTest, SuffixesAndMalformed) {
  EXPECT_EQ(ParseSizeWithSuffix("32M\n"), 32 << 20);
  EXPECT_EQ(ParseSizeWithSuffix("512K"), 512 << 10);
  EXPECT_EQ(ParseSizeWithSuffix("64"), 64);
  EXPECT_EQ(ParseSizeWithSuffix(""), 0);
  EXPECT_EQ(ParseSizeWithSuffix("M"), 0);
  EXPECT_EQ(ParseSizeWithSuffix("-1K"), 0);
  EXPECT_EQ(ParseSizeWithSuffix("9223372036854775807G"), 0);
}

TEST(MachineTest, TheSteadyClockIsThatOfTheBoot) {
  std::string boot;
  ASSERT_TRUE(std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot));
  EXPECT_THAT(SteadyClockName(), ::testing::StartsWith(boot + " "));
}

TEST(MachineTest, ThisMachineHasMemoryAndCaches) {
  EXPECT_FALSE(CpuModelName().empty());
  EXPECT_GT(LastLevelCacheBytes(), 0);
  EXPECT_GT(AvailableMemoryBytes(), 0);
  EXPECT_LE(AvailableMemoryBytes(), MachineMemoryBytes());
}

TEST(AffinityTest, PinsToUsableCpusOnly) {
  const std::vector<int> cpus = UsableCpus();
  ASSERT_FALSE(cpus.empty());
  EXPECT_TRUE(PinThisThread(cpus.front()).ok());
  EXPECT_EQ(UsableCpus(), std::vector<int>{cpus.front()});
  EXPECT_EQ(PinThisThread(-1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PinThisThread(1 << 20).code(), absl::StatusCode::kInvalidArgument);
}

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
