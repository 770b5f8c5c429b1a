// ProfileCompute and GetWorkerInfo over real sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "common/base/bytes.h"
#include "common/domain/expected_lookups.h"
#include "common/rpc/status_mapping.h"
#include "kernels/tcp/tcp_backend.h"
#include "tests/support/fake_device_backend.h"
#include "tests/support/faulty_fields.h"
#include "tests/support/test_worker.h"
#include "worker/device/cpu_devices.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeDeviceBackend;
using ::neuroshard::testing::FakeDeviceLog;
using ::neuroshard::testing::FakeDeviceScript;
using ::neuroshard::testing::TestWorker;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<DeviceSpec> CpuSpecs(int count, std::int64_t memory_bytes = 64 * kMiB) {
  return CpuDeviceSpecs({.count = count, .memory_bytes = memory_bytes},
                        std::make_shared<const TcpBackend>(CollectiveOptions{}));
}

v1::ProfileComputeRequest Header(int device = 0) {
  v1::ProfileComputeRequest request;
  request.mutable_header()->set_device(device);
  auto& settings = *request.mutable_header()->mutable_settings();
  settings.set_warmup_iterations(1);
  settings.set_min_iterations(2);
  settings.set_max_iterations(3);
  settings.set_flush_cache(false);
  return request;
}

v1::ProfileComputeRequest Sample(const std::string& id, std::int64_t rows = 50) {
  v1::ProfileComputeRequest request;
  v1::ComputeSample& sample = *request.mutable_sample();
  sample.set_sample_id(id);
  sample.set_batch_size(16);
  sample.set_optimizer("sgd");
  for (int i = 0; i < 2; ++i) {
    v1::MeasuredShard& shard = *sample.add_shards();
    shard.set_table("t");
    shard.set_rows(rows);
    shard.set_cols(8);
    shard.set_pooling_factor(2);
    shard.add_reuse_histogram(1);
    for (int bin = 1; bin < 17; ++bin) shard.add_reuse_histogram(0);
    shard.set_weight_dtype("fp32");
    shard.set_pooling_mode("sum");
  }
  return request;
}

TEST(ComputeServiceTest, AnswersEachSampleInOrderAsItIsDone) {
  TestWorker worker(CpuSpecs(1));
  grpc::ClientContext context;
  auto stream = worker.stub().ProfileCompute(&context);
  ASSERT_TRUE(stream->Write(Header()));
  for (const std::string id : {"a", "b", "c"}) {
    ASSERT_TRUE(stream->Write(Sample(id)));
    v1::ProfileComputeResponse response;
    ASSERT_TRUE(stream->Read(&response)) << "the record must not wait for the next sample";
    const v1::ComputeMeasurement& record = response.measurement();
    EXPECT_EQ(record.sample_id(), id);
    EXPECT_EQ(record.outcome(), "ok");
    EXPECT_THAT(record.forward().samples_ms(), SizeIs(3));
    EXPECT_THAT(record.backward().samples_ms(), Each(Ge(0.0)));
    EXPECT_EQ(record.forward().warmup_iterations(), 1);
    EXPECT_EQ(record.environment().backend(), "neuroshard-cpu");
    EXPECT_FALSE(record.environment().git_commit().empty());
    EXPECT_EQ(record.environment().measured_at_unix_ms(), 1'700'000'000'000);
  }
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(worker.RunningJob(0), "");
}

// What a cache misses is what is expected of the histogram (common/domain/expected_lookups), but
// that sets are of 32 rows.
TEST(ComputeServiceTest, MissesOfCachesAreInTheRecord) {
  TestWorker worker(CpuSpecs(1));
  grpc::ClientContext context;
  auto stream = worker.stub().ProfileCompute(&context);
  v1::ProfileComputeRequest header = Header();
  header.mutable_header()->mutable_settings()->set_flush_cache(true);
  header.mutable_header()->mutable_settings()->set_min_iterations(10);
  header.mutable_header()->mutable_settings()->set_max_iterations(10);
  ASSERT_TRUE(stream->Write(header));
  constexpr std::int64_t kRows = 4000, kIds = 1600;
  for (const double load_factor : {0.1, 0.5, 1.0}) {
    v1::ProfileComputeRequest request = Sample("cached", kRows);
    request.mutable_sample()->set_batch_size(kIds / 2);
    v1::MeasuredShard& cached = *request.mutable_sample()->mutable_shards(0);
    cached.set_compute_kernel("fused_uvm_caching");
    cached.set_cache_load_factor(load_factor);
    for (const auto& [bin, share] : {std::pair(0, 0.6), {1, 0.2}, {3, 0.15}, {5, 0.05}}) {
      cached.set_reuse_histogram(bin, share);
    }
    request.mutable_sample()->mutable_shards(1)->set_compute_kernel("fused_uvm");
    ASSERT_TRUE(stream->Write(request));
    v1::ProfileComputeResponse response;
    ASSERT_TRUE(stream->Read(&response)) << stream->Finish().error_message();
    ASSERT_EQ(response.measurement().outcome(), "ok") << response.measurement().detail();
    const auto& properties = response.measurement().environment().properties();
    const double rows = std::stod(properties.at("cached_rows_per_batch"));
    const double missed = std::stod(properties.at("missed_rows_per_batch"));
    ReuseHistogram histogram{};
    std::copy(cached.reuse_histogram().begin(), cached.reuse_histogram().end(), histogram.begin());
    const CacheHits expected = ExpectedCacheHits(histogram, kRows, kIds, load_factor);
    EXPECT_NEAR(rows, expected.distinct_ids, 0.05 * rows);
    EXPECT_NEAR(1 - missed / rows, expected.hit_rate, 0.06) << load_factor;
  }
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(ComputeServiceTest, OutOfMemoryIsARecordAndTheStreamGoesOn) {
  TestWorker worker(CpuSpecs(1));
  grpc::ClientContext context;
  auto stream = worker.stub().ProfileCompute(&context);
  ASSERT_TRUE(stream->Write(Header()));
  ASSERT_TRUE(stream->Write(Sample("huge", std::int64_t{1} << 40)));
  v1::ProfileComputeResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.measurement().outcome(), "out_of_memory");
  EXPECT_FALSE(response.measurement().detail().empty());
  ASSERT_TRUE(stream->Write(Sample("small")));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.measurement().outcome(), "ok");
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(ComputeServiceTest, MalformedSampleEndsTheStreamWithAllFaults) {
  TestWorker worker(CpuSpecs(1));
  grpc::ClientContext context;
  auto stream = worker.stub().ProfileCompute(&context);
  ASSERT_TRUE(stream->Write(Header()));
  v1::ProfileComputeRequest bad = Sample("bad");
  bad.mutable_sample()->set_batch_size(0);
  bad.mutable_sample()->mutable_shards(1)->set_rows(-4);
  ASSERT_TRUE(stream->Write(bad));
  const Status status = FromGrpc(stream->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::vector<std::string> fields = FaultyFields(status);
  EXPECT_THAT(fields,
              ::testing::UnorderedElementsAre("sample.batch_size", "sample.shards[1].rows"));
  EXPECT_EQ(worker.RunningJob(0), "");
}

TEST(ComputeServiceTest, HeaderFaults) {
  TestWorker worker(CpuSpecs(1));
  {
    grpc::ClientContext context;
    auto stream = worker.stub().ProfileCompute(&context);
    stream->Write(Sample("no header"));
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  {
    grpc::ClientContext context;
    auto stream = worker.stub().ProfileCompute(&context);
    v1::ProfileComputeRequest header = Header(7);
    header.mutable_header()->mutable_settings()->set_max_time_ms(-1);
    stream->Write(header);
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("header.device: must be in [0, 1), got 7"));
    EXPECT_THAT(status.error_message(), HasSubstr("header.settings.max_time_ms"));
  }
}

TEST(ComputeServiceTest, SecondJobOnADeviceIsRefusedAtOnce) {
  TestWorker worker(CpuSpecs(2));
  grpc::ClientContext first_context;
  auto first = worker.stub().ProfileCompute(&first_context);
  first->Write(Header());
  first->Write(Sample("a"));
  v1::ProfileComputeResponse response;
  ASSERT_TRUE(first->Read(&response));

  grpc::ClientContext second_context;
  auto second = worker.stub().ProfileCompute(&second_context);
  second->Write(Header());
  const grpc::Status refused = second->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("device 0"));
  EXPECT_THAT(refused.error_message(), HasSubstr("ProfileCompute of"));

  v1::WorkerInfo info;
  grpc::ClientContext info_context;
  ASSERT_TRUE(worker.stub().GetWorkerInfo(&info_context, {}, &info).ok());
  ASSERT_EQ(info.devices_size(), 2);
  EXPECT_THAT(info.devices(0).running_job(), HasSubstr("ProfileCompute"));
  EXPECT_EQ(info.devices(1).running_job(), "");
  EXPECT_EQ(info.devices(0).collective_backend(), "neuroshard-tcp");
  EXPECT_EQ(info.devices(0).memory_bytes(), 64 * kMiB);
  EXPECT_THAT(info.devices(0).weight_dtypes(), ElementsAre("fp32"));
  EXPECT_THAT(info.devices(0).optimizers(),
              ElementsAre("sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam",
                          "lamb", "lars_sgd"));
  EXPECT_THAT(info.devices(0).pooling_modes(), ElementsAre("sum", "mean", "none"));
  EXPECT_THAT(info.devices(0).compute_kernels(),
              ElementsAre("fused", "fused_uvm", "fused_uvm_caching"));
  EXPECT_FALSE(info.hostname().empty());

  first->WritesDone();
  EXPECT_TRUE(first->Finish().ok());
}

// A device whose measurements never converge and never reach their limit.
class EndlessDevice {
 public:
  std::vector<DeviceSpec> Specs() {
    script_.on_time = [this] { timed_.fetch_add(1); };
    return {{.create = [this]() -> StatusOr<std::unique_ptr<DeviceBackend>> {
               return std::make_unique<FakeDeviceBackend>(script_, log_);
             },
             .core = std::nullopt}};
  }
  void WaitUntilMeasuring() const {
    while (timed_.load() == 0) std::this_thread::yield();
  }

 private:
  FakeDeviceScript script_;
  FakeDeviceLog log_;
  std::atomic<int> timed_{0};
};

v1::ProfileComputeRequest EndlessHeader() {
  v1::ProfileComputeRequest header = Header();
  auto& settings = *header.mutable_header()->mutable_settings();
  settings.set_warmup_iterations(1000);
  settings.set_min_iterations(10000);
  settings.set_max_iterations(10000);
  return header;
}

TEST(ComputeServiceTest, CancelStopsTheMeasurementAndFreesTheDevice) {
  EndlessDevice device;
  TestWorker worker(device.Specs());
  grpc::ClientContext context;
  auto stream = worker.stub().ProfileCompute(&context);
  stream->Write(EndlessHeader());
  stream->Write(Sample("endless"));
  device.WaitUntilMeasuring();
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  while (!worker.RunningJob(0).empty()) std::this_thread::yield();
}

TEST(ComputeServiceTest, CancelWhileTheWorkerWaitsForASampleFreesTheDevice) {
  TestWorker worker(CpuSpecs(1));
  grpc::ClientContext context;
  auto stream = worker.stub().ProfileCompute(&context);
  stream->Write(Header());
  while (worker.RunningJob(0).empty()) std::this_thread::yield();
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  while (!worker.RunningJob(0).empty()) std::this_thread::yield();
}

TEST(ComputeServiceTest, AClientThatSendsNothingLosesTheDevice) {
  TestWorker worker(CpuSpecs(1), {.stream_idle_timeout = std::chrono::milliseconds(100)});
  grpc::ClientContext context;
  auto stream = worker.stub().ProfileCompute(&context);
  stream->Write(Header());
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  while (!worker.RunningJob(0).empty()) std::this_thread::yield();
}

TEST(ComputeServiceTest, DrainLetsTheRunningSampleFinish) {
  TestWorker worker(CpuSpecs(1));
  grpc::ClientContext context;
  auto stream = worker.stub().ProfileCompute(&context);
  stream->Write(Header());
  stream->Write(Sample("before"));
  v1::ProfileComputeResponse response;
  ASSERT_TRUE(stream->Read(&response));
  std::thread drain([&worker] {
    worker.server().RequestDrain();
    worker.server().Wait();
  });
  // Until the drain has begun, samples go on being answered.
  bool open = true;
  while (open) {
    open = stream->Write(Sample("during")) && stream->Read(&response);
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  drain.join();
}

}  // namespace
}  // namespace neuroshard
