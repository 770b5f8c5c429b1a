#include "client/sweep/shared_sweep.h"

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
  SampleQueue<ComputeSample> queue(Samples(2));
  EXPECT_EQ(queue.Take()->sample.sample_id, "0");
  EXPECT_EQ(queue.Take()->sample.sample_id, "1");
  EXPECT_EQ(queue.unsettled(), 2u);
  queue.Settle();
  queue.Settle();
  EXPECT_EQ(queue.Take(), std::nullopt);
  EXPECT_EQ(queue.unsettled(), 0u);
}

TEST(SampleQueueTest, AReturnedSampleComesAgainWithItsFailures) {
  SampleQueue<ComputeSample> queue(Samples(1));
  Attempt<ComputeSample> attempt = *queue.Take();
  ++attempt.failures;
  queue.Return(attempt);
  EXPECT_EQ(queue.Take()->failures, 1);
}

TEST(SampleQueueTest, WhoeverWaitsGetsWhatAnotherReturns) {
  SampleQueue<ComputeSample> queue(Samples(1));
  Attempt<ComputeSample> taken = *queue.Take();
  std::optional<Attempt<ComputeSample>> got;
  std::thread waiter([&] { got = queue.Take(); });
  queue.Return(taken);
  waiter.join();
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->sample.sample_id, "0");
}

TEST(SampleQueueTest, CloseEndsWaiting) {
  SampleQueue<ComputeSample> queue(Samples(2));
  const auto taken = queue.Take();
  queue.Close();
  EXPECT_EQ(queue.Take(), std::nullopt);
  EXPECT_EQ(queue.unsettled(), 2u);
}

}  // namespace
}  // namespace neuroshard
