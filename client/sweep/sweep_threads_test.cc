#include "client/sweep/sweep_threads.h"

#include <gtest/gtest.h>

#include <thread>

namespace neuroshard {
namespace {

std::vector<ComputeSample> Samples(int count) {
  std::vector<ComputeSample> samples(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    samples[static_cast<std::size_t>(i)].sample_id = std::to_string(i);
  return samples;
}

TEST(SampleQueueTest, HandsOutInOrderAndEndsWhenAllAreSettled) {
  SampleQueue queue(Samples(2));
  EXPECT_EQ(queue.Take()->sample.sample_id, "0");
  EXPECT_EQ(queue.Take()->sample.sample_id, "1");
  EXPECT_EQ(queue.unsettled(), 2u);
  queue.Settle();
  queue.Settle();
  EXPECT_EQ(queue.Take(), std::nullopt);
  EXPECT_EQ(queue.unsettled(), 0u);
}

TEST(SampleQueueTest, AReturnedSampleComesAgainWithItsFailures) {
  SampleQueue queue(Samples(1));
  ComputeAttempt attempt = *queue.Take();
  ++attempt.failures;
  queue.Return(attempt);
  EXPECT_EQ(queue.Take()->failures, 1);
}

TEST(SampleQueueTest, WhoeverWaitsGetsWhatAnotherReturns) {
  SampleQueue queue(Samples(1));
  ComputeAttempt taken = *queue.Take();
  std::optional<ComputeAttempt> got;
  std::thread waiter([&] { got = queue.Take(); });
  queue.Return(taken);
  waiter.join();
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->sample.sample_id, "0");
}

TEST(SampleQueueTest, CloseEndsWaiting) {
  SampleQueue queue(Samples(2));
  const auto taken = queue.Take();
  queue.Close();
  EXPECT_EQ(queue.Take(), std::nullopt);
  EXPECT_EQ(queue.unsettled(), 2u);
}

}  // namespace
}  // namespace neuroshard
