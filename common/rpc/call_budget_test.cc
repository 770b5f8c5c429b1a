#include "common/rpc/call_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

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
using ::testing::AllOf;
using ::testing::HasSubstr;

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
