// The fake's streams are as unordered as real ones: what lacks a wait goes wrong now and then, and
// what has one never does.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "tests/fake_gpu/fake_runtime.h"

namespace neuroshard::fake_gpu {
namespace {

using ::testing::ElementsAre;

constexpr int kTimes = 200;

class OrderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (cudaStream_t* stream : {&first_, &second_}) {
      ASSERT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
    }
    for (void** memory : {&a_, &b_}) ASSERT_EQ(cudaMalloc(memory, 1), cudaSuccess);
    ASSERT_EQ(cudaEventCreate(&event_), cudaSuccess);
  }
  void TearDown() override {
    (void)cudaFree(a_);
    (void)cudaFree(b_);
    (void)cudaEventDestroy(event_);
    (void)cudaStreamDestroy(first_);
    (void)cudaStreamDestroy(second_);
  }

  // What the second stream copies of what the first one sets to 1, with `between` the calls.
  template <typename Between>
  std::set<int> Copied(Between between) {
    std::set<int> seen;
    for (int i = 0; i < kTimes; ++i) {
      (void)cudaMemsetAsync(a_, 0, 1, first_);
      (void)cudaStreamSynchronize(first_);
      (void)cudaMemsetAsync(a_, 1, 1, first_);
      between();
      (void)cudaMemcpyAsync(b_, a_, 1, cudaMemcpyDeviceToDevice, second_);
      char copied = 0;
      (void)cudaMemcpyAsync(&copied, b_, 1, cudaMemcpyDeviceToHost, second_);
      (void)cudaStreamSynchronize(second_);
      seen.insert(copied);
    }
    return seen;
  }

  cudaStream_t first_ = nullptr, second_ = nullptr;
  cudaEvent_t event_ = nullptr;
  void *a_ = nullptr, *b_ = nullptr;
};

TEST_F(OrderTest, AMissingWaitBetweenStreamsIsSeen) {
  EXPECT_THAT(Copied([] {}), ElementsAre(0, 1));
  // The host's wait for another stream is none.
  EXPECT_THAT(Copied([this] { (void)cudaStreamSynchronize(second_); }), ElementsAre(0, 1));
}

TEST_F(OrderTest, AWaitIsKept) {
  EXPECT_THAT(Copied([this] { (void)cudaStreamSynchronize(first_); }), ElementsAre(1));
  EXPECT_THAT(Copied([this] {
                (void)cudaEventRecord(event_, first_);
                (void)cudaEventSynchronize(event_);
              }),
              ElementsAre(1));
  EXPECT_THAT(Copied([this] {
                (void)cudaEventRecord(event_, first_);
                while (cudaEventQuery(event_) == cudaErrorNotReady) LetOthersRun();
              }),
              ElementsAre(1));
}

TEST_F(OrderTest, AMissingWaitOfTheHostIsSeen) {
  std::set<int> read, given;
  for (int i = 0; i < kTimes; ++i) {
    char host = 0;
    (void)cudaMemsetAsync(a_, 1, 1, first_);
    (void)cudaMemcpyAsync(&host, a_, 1, cudaMemcpyDeviceToHost, first_);
    read.insert(host);
    (void)cudaStreamSynchronize(first_);
    // Changed while it may still be on its way to the device.
    (void)cudaMemcpyAsync(a_, &host, 1, cudaMemcpyHostToDevice, first_);
    host = 2;
    (void)cudaStreamSynchronize(first_);
    (void)cudaMemcpyAsync(&host, a_, 1, cudaMemcpyDeviceToHost, first_);
    (void)cudaStreamSynchronize(first_);
    given.insert(host);
  }
  EXPECT_THAT(read, ElementsAre(0, 1));
  EXPECT_THAT(given, ElementsAre(1, 2));
}

TEST_F(OrderTest, WhatIsWrongOnADeviceIsAnErrorHere) {
  char host = 0;
  EXPECT_EQ(cudaMemcpyAsync(&host, a_, 1, cudaMemcpyHostToDevice, first_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(a_, &host, 1, cudaMemcpyDeviceToHost, first_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(a_, b_, 2, cudaMemcpyDeviceToDevice, first_), cudaErrorInvalidValue);
  float ms = 0;
  EXPECT_EQ(cudaEventElapsedTime(&ms, event_, event_), cudaErrorInvalidResourceHandle);
  bool not_ready = false;
  for (int i = 0; i < kTimes; ++i) {
    (void)cudaEventRecord(event_, first_);
    not_ready = not_ready || cudaEventElapsedTime(&ms, event_, event_) == cudaErrorNotReady;
  }
  EXPECT_TRUE(not_ready);
  (void)cudaGetLastError();
}

}  // namespace
}  // namespace neuroshard::fake_gpu
