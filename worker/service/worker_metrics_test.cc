#include "worker/service/worker_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <sstream>

namespace neuroshard {
namespace {

using ::testing::HasSubstr;

TEST(WorkerMetricsTest, CountsByKindAndOutcome) {
  prometheus::Registry registry;
  WorkerMetrics metrics(registry);
  metrics.SampleEnded(MeasurementKind::kCompute, "ok", 0.5);
  metrics.SampleEnded(MeasurementKind::kCompute, "ok", 0.25);
  metrics.SampleEnded(MeasurementKind::kComm, "error", 1);
  metrics.SetOpenGroups(3);
  metrics.SetDeviceBusy(1, true);
  metrics.SetDeviceBusy(0, true);
  metrics.SetDeviceBusy(0, false);
  std::ostringstream stream;
  prometheus::TextSerializer().Serialize(stream, registry.Collect());
  const std::string text = stream.str();
  EXPECT_THAT(text,
              HasSubstr("neuroshard_worker_samples_total{kind=\"compute\",outcome=\"ok\"} 2"));
  EXPECT_THAT(text, HasSubstr("samples_total{kind=\"comm\",outcome=\"error\"} 1"));
  EXPECT_THAT(text, HasSubstr("measurement_seconds_sum{kind=\"compute\"} 0.75"));
  EXPECT_THAT(text, HasSubstr("neuroshard_worker_open_comm_groups 3"));
  EXPECT_THAT(text, HasSubstr("neuroshard_worker_device_busy{device=\"0\"} 0"));
  EXPECT_THAT(text, HasSubstr("neuroshard_worker_device_busy{device=\"1\"} 1"));
}

}  // namespace
}  // namespace neuroshard
