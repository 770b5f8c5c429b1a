#include "worker/device/cpu_devices.h"

#include <gtest/gtest.h>

#include <set>

#include "common/base/bytes.h"
#include "kernels/tcp/tcp_backend.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

TEST(CpuDevicesTest, MemoryIsSharedAndCapped) {
  EXPECT_EQ(FairCpuMemoryBytes(24 * kGiB, 4), 2 * kGiB);
  EXPECT_EQ(FairCpuMemoryBytes(1000 * kGiB, 4), 8 * kGiB);
  EXPECT_EQ(FairCpuMemoryBytes(0, 4), 16 * kMiB) << "a full host still gets devices; samples fail";
}

TEST(CpuDevicesTest, PinsRoundRobinFromTheFirstCore) {
  for (const DeviceSpec& spec : CpuDeviceSpecs({.count = 3}, nullptr)) {
    EXPECT_FALSE(spec.core.has_value());
  }
  const auto specs = CpuDeviceSpecs({.count = 200, .pin_threads = true, .first_core = 1}, nullptr);
  std::set<int> cores;
  for (const DeviceSpec& spec : specs) cores.insert(spec.core.value());
  ASSERT_EQ(specs.size(), 200U);
  for (std::size_t i = cores.size(); i < specs.size(); ++i) {
    EXPECT_EQ(specs[i].core, specs[i - cores.size()].core);
  }
}

TEST(CpuDevicesTest, DevicesHaveTheMemoryThatWasAsked) {
  const auto specs = CpuDeviceSpecs({.count = 2, .memory_bytes = 64 * kMiB},
                                    std::make_shared<const TcpBackend>(CollectiveOptions{}));
  ASSERT_EQ(specs.size(), 2U);
  NS_ASSERT_OK_AND_ASSIGN(const auto device, specs[1].create());
  EXPECT_EQ(device->properties().memory_bytes, 64 * kMiB);
  EXPECT_EQ(device->properties().backend, "neuroshard-cpu");
}

}  // namespace
}  // namespace neuroshard
