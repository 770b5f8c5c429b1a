#include "client/stub/call_policy.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

using std::chrono::milliseconds;

TEST(BackoffTest, WaitsGrowToTheLongestAndKeepTheirJitterWithinHalf) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Backoff backoff(milliseconds(100), milliseconds(1000), seed);
    for (const int ceiling_ms : {100, 200, 400, 800, 1000, 1000}) {
      const milliseconds wait = backoff.Next();
      EXPECT_GE(wait.count(), ceiling_ms / 2);
      EXPECT_LE(wait.count(), ceiling_ms);
    }
    backoff.Reset();
    EXPECT_LE(backoff.Next().count(), 100);
  }
}

TEST(BackoffTest, TwoClientsDoNotMoveInStep) {
  Backoff a(milliseconds(10'000), milliseconds(10'000), 1);
  Backoff b(milliseconds(10'000), milliseconds(10'000), 2);
  EXPECT_NE(a.Next(), b.Next());
}

}  // namespace
}  // namespace neuroshard
