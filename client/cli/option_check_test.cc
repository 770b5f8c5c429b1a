#include "client/cli/option_check.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

TEST(CheckAddressTest, AcceptsHostAndPort) {
  for (const char* good : {"127.0.0.1:50051", "worker-3.cluster:1", "[::1]:65535"})
    EXPECT_EQ(CheckAddress(good), "") << good;
}

TEST(CheckAddressTest, RefusesTheRest) {
  for (const char* bad : {"", "host", ":1", "host:", "host:0", "host:65536", "host:1x", "::1:5",
                          "host:-1", "a:1:2"}) {
    EXPECT_NE(CheckAddress(bad), "") << bad;
  }
}

}  // namespace
}  // namespace neuroshard
