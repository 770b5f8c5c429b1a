#include "common/rpc/call_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <queue>
#include <vector>

#include "common/rpc/status_mapping.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeClock;
using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::StatusIs;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
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

class CallBudgetTest : public ::testing::Test {
 protected:
  FakeClock clock_;
  RetryPacer pacer_{clock_};
};

TEST_F(CallBudgetTest, WhatDoesNotFitIsRefusedAndQuotesTheLimit) {
  CallBudget budget(10, "threads of searches", "rpc.max_search_threads_in_flight", pacer_);
  auto first = budget.Take(8);
  EXPECT_THAT(first, IsOk());
  EXPECT_THAT(budget.Take(3), StatusIs(absl::StatusCode::kResourceExhausted,
                                       AllOf(HasSubstr("8 threads of searches"), HasSubstr("10 is"),
                                             HasSubstr("rpc.max_search_threads_in_flight"))));
  {
    const auto second = budget.Take(2);
    EXPECT_THAT(second, IsOk());
    EXPECT_EQ(budget.taken(), 10);
  }
  *first = {};
  EXPECT_EQ(budget.taken(), 0);
}

TEST_F(CallBudgetTest, ACallThatIsAloneMayTakeMoreThanTheLimit) {
  CallBudget budget(10, "bytes", "x", pacer_);
  const auto all = budget.Take(1000);
  EXPECT_THAT(all, IsOk());
  EXPECT_THAT(budget.Take(1), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(CallBudgetTest, AShareGrowsWhereThereIsRoom) {
  CallBudget budget(3, "threads", "x", pacer_);
  auto first = budget.Take(1);
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(budget.Grow(*first, 8), IsOk()) << "alone";
  *first = {};
  EXPECT_EQ(budget.taken(), 0);
  auto second = budget.Take(1);
  auto third = budget.Take(1);
  ASSERT_THAT(third, IsOk());
  EXPECT_THAT(budget.Grow(*third, 2), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(budget.Grow(*third, 1), IsOk());
  EXPECT_EQ(budget.taken(), 3);
  *third = {};
  EXPECT_EQ(budget.taken(), 1);
}

TEST_F(CallBudgetTest, ARefusalSaysWhenToTryAgain) {
  CallBudget budget(1, "calls", "x", pacer_);
  const auto one = budget.Take(1);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(ToGrpc(budget.Take(1).status()).error_details()));
  google::rpc::ErrorInfo reason;
  google::rpc::RetryInfo retry;
  ASSERT_EQ(details.details_size(), 2);
  ASSERT_TRUE(details.details(0).UnpackTo(&reason));
  EXPECT_EQ(reason.reason(), "OVERLOADED");
  ASSERT_TRUE(details.details(1).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().nanos(), 250'000'000);
  EXPECT_EQ(RetryAfterOf(budget.Take(1).status()), std::chrono::milliseconds(270))
      << "after the other";
}

}  // namespace
}  // namespace neuroshard
