#include <gtest/gtest.h>

#include "client/cli/command_options.h"

namespace neuroshard {
namespace {

TEST(CheckAddressTest, AcceptsHostAndPort) {
  for (const char* good : {"127.0.0.1:50051", "worker-3.cluster:1", "[::1]:65535"})
    EXPECT_EQ(CheckAddress(good), "") << good;
}

TEST(CheckAddressTest, RefusesTheRest) {
  for (const char* bad : {"", "host", ":1", "host:", "host:0", "host:65536", "host:1x", "::1:5",
                          "host:-1", "a:1:2", " a:1", "a :1", "a:1\n", "a:1 "}) {
    EXPECT_NE(CheckAddress(bad), "") << bad;
  }
}

TEST(CheckReplicaAddressTest, AcceptsOneOrAList) {
  for (const char* good : {"planner:50051", "10.0.0.1:1,10.0.0.2:2", "a.example:1,[fe80::2]:2"})
    EXPECT_EQ(CheckReplicaAddress(good), "") << good;
}

TEST(CheckReplicaAddressTest, RefusesTheRest) {
  for (const char* bad :
       {"host", "10.0.0.1:1,", ",10.0.0.1:1", "10.0.0.1:1,10.0.0.2", "10.0.0.1:1,,10.0.0.2:1"}) {
    EXPECT_NE(CheckReplicaAddress(bad), "") << bad;
  }
}

}  // namespace
}  // namespace neuroshard
