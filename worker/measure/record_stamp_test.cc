#include "worker/measure/record_stamp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/build_info.h"

namespace neuroshard {
namespace {

TEST(RecordStampTest, LaterPropertiesWin) {
  const RecordStamp stamp(
      MeasurementEnvironment{.worker_version = "1",
                             .git_commit = "c",
                             .hostname = "h",
                             .device = "",
                             .backend = "",
                             .properties = {{"a", "host"}, {"b", "host"}, {"c", "host"}}},
      [] { return std::int64_t{99}; });
  DeviceProperties device;
  device.memory_bytes = 5;
  device.details = {{"b", "device"}, {"c", "device"}};
  const MeasurementEnvironment environment = stamp.Make(device, {}, {{"c", "more"}});
  EXPECT_EQ(environment.properties.at("a"), "host");
  EXPECT_EQ(environment.properties.at("b"), "device");
  EXPECT_EQ(environment.properties.at("c"), "more");
  EXPECT_EQ(environment.properties.at("device_memory_bytes"), "5");
  EXPECT_EQ(environment.properties.at("settings"),
            "warmup_iterations=3 min_iterations=5 max_iterations=50 target_relative_error=0.02 "
            "max_time_ms=2000 flush_cache=true");
  EXPECT_EQ(environment.measured_at_unix_ms, 99);
}

TEST(RecordStampTest, HostIdentifiesItself) {
  const MeasurementEnvironment host = IdentifyHost();
  EXPECT_EQ(host.worker_version, BuildVersion());
  EXPECT_THAT(host.worker_version, ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_FALSE(host.git_commit.empty());
  EXPECT_FALSE(host.hostname.empty());
  EXPECT_THAT(host.properties, ::testing::Contains(::testing::Key("kernel")));
}

}  // namespace
}  // namespace neuroshard
