#include "common/rpc/retry_pacer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <queue>
#include <vector>

#include "tests/support/fake_clock.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeClock;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Lt;

class RetryPacerTest : public ::testing::Test {
 protected:
  // Calls end so often for long enough to be known.
  void EndCalls(milliseconds between) {
    for (int i = 0; i < 100; ++i) {
      clock_.Advance(between);
      pacer_.CallEnded();
    }
  }

  FakeClock clock_;
  RetryPacer pacer_{clock_};
};

TEST_F(RetryPacerTest, TheDelayGrowsWithHowManyWait) {
  EndCalls(milliseconds(40));
  EXPECT_EQ(pacer_.Next(), milliseconds(250));
  EXPECT_EQ(pacer_.Next(), milliseconds(260));
  for (int i = 2; i < 400; ++i) pacer_.Next();
  EXPECT_EQ(pacer_.Next(), milliseconds(250 + 400 * 10));
}

TEST_F(RetryPacerTest, DelaysAreShortAgainWhenThoseWhoWaitedCameBack) {
  EndCalls(milliseconds(40));
  for (int i = 0; i < 100; ++i) pacer_.Next();
  clock_.Advance(seconds(2));
  EXPECT_EQ(pacer_.Next(), milliseconds(250));
}

TEST_F(RetryPacerTest, ReturnsFollowTheCallsThatEnd) {
  EndCalls(milliseconds(4));
  pacer_.Next();
  EXPECT_EQ(pacer_.Next(), milliseconds(251));
  EndCalls(milliseconds(1));
  pacer_.Next();
  EXPECT_EQ(pacer_.Next(), milliseconds(251)) << "at most a thousand a second";
  EndCalls(seconds(30));
  pacer_.Next();
  EXPECT_EQ(pacer_.Next(), milliseconds(270)) << "at least fifty a second";
}

TEST_F(RetryPacerTest, DelaysStayBelowTheLongestAndEvenHoweverManyWait) {
  EndCalls(milliseconds(40));
  std::vector<milliseconds> delays;
  for (int i = 0; i < 9'760; ++i) delays.push_back(pacer_.Next());  // ten times around
  EXPECT_THAT(delays, Each(Ge(RetryPacer::kShortest)));
  EXPECT_LE(*std::max_element(delays.begin(), delays.end()), RetryPacer::kLongest);
  std::vector<int> in_second(10);
  for (const milliseconds delay : delays) ++in_second[(delay - milliseconds(1)) / seconds(1)];
  in_second.erase(in_second.begin());  // less than a whole one
  EXPECT_THAT(in_second, Each(::testing::AllOf(Ge(990), Lt(1010))));
}

// Callers that come back when they were told to and are refused again, as long as calls end every
// 40 ms.
TEST_F(RetryPacerTest, WhatIsRefusedASecondDoesNotGrowWithTheCallers) {
  EndCalls(milliseconds(40));
  for (const int callers : {200, 400, 800}) {
    std::priority_queue<TimePoint, std::vector<TimePoint>, std::greater<>> back;
    for (int i = 0; i < callers; ++i) back.push(clock_.Now() + pacer_.Next());
    const TimePoint begin = clock_.Now() + seconds(10);
    const TimePoint end = begin + seconds(20);
    int refused = 0;
    while (back.top() < end) {
      clock_.Advance(back.top() - clock_.Now());
      back.pop();
      refused += clock_.Now() >= begin ? 1 : 0;
      back.push(clock_.Now() + pacer_.Next());
    }
    EXPECT_LE(refused, 20 * 100 + 1) << callers;
    EXPECT_GE(refused, 20 * 90) << callers;
    clock_.Advance(seconds(20));
  }
}

}  // namespace
}  // namespace neuroshard
