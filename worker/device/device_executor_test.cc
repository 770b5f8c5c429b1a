#include "worker/device/device_executor.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

namespace neuroshard {
namespace {

TEST(DeviceExecutorTest, RunsEverythingOnOneThreadInOrder) {
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  DeviceExecutor executor;
  std::vector<std::future<void>> done;
  for (int i = 0; i < 50; ++i) {
    done.push_back(executor.Run([&, i] {
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
    }));
  }
  for (auto& one : done) one.wait();
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(order[i], i);
    EXPECT_EQ(threads[i], threads[0]);
  }
  EXPECT_NE(threads[0], std::this_thread::get_id());
}

TEST(DeviceExecutorTest, ReturnsValuesAndExceptions) {
  DeviceExecutor executor;
  EXPECT_EQ(executor.Run([] { return 42; }).get(), 42);
  auto failed = executor.Run([]() -> int { throw std::runtime_error("no"); });
  EXPECT_THROW(failed.get(), std::runtime_error);
  EXPECT_EQ(executor.Run([] { return 1; }).get(), 1) << "an exception must not end the thread";
}

TEST(DeviceExecutorTest, DestructorFinishesWhatIsQueued) {
  int ran = 0;
  {
    DeviceExecutor executor;
    for (int i = 0; i < 20; ++i) (void)executor.Run([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 20);
}

TEST(DeviceExecutorTest, PinsWhereItMayAndRunsAnywayWhereItMayNot) {
  DeviceExecutor pinned(0);
  EXPECT_EQ(pinned.Run([] { return 7; }).get(), 7);
  DeviceExecutor nowhere(1'000'000);
  EXPECT_EQ(nowhere.Run([] { return 7; }).get(), 7);
}

}  // namespace
}  // namespace neuroshard
