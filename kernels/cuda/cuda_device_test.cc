#include "kernels/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "kernels/api/testing/op_contents.h"
#include "kernels/cuda/device_gate.h"
#include "kernels/cuda/kernel_launches.h"
#include "kernels/cuda/nvml.h"
#include "tests/support/embedding_suite.h"
#include "tests/support/every_kernel.h"
#include "tests/support/no_collectives.h"

namespace neuroshard::testing {
namespace {

constexpr const char* kNoDevice = "there is no CUDA device on this machine";

class CudaDevices {
 public:
  static constexpr DataType kTypes[] = {DataType::kFp32, DataType::kFp16, DataType::kBf16};
  static constexpr std::int64_t kManyHits = 10'000'000;
  static const char* Unavailable() { return cuda::CountCudaDevices().ok() ? nullptr : kNoDevice; }
  CudaDevices() : device_(CudaDevice::Create(0, std::make_shared<NoCollectives>()).value()) {}
  StatusOr<std::unique_ptr<EmbeddingOp>> Create(const EmbeddingOpSpec& spec) {
    return device_->CreateEmbeddingOp(spec);
  }

 private:
  std::unique_ptr<CudaDevice> device_;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, EmbeddingSuite, CudaDevices);

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto devices = cuda::CountCudaDevices(); !devices.ok()) {
      GTEST_SKIP() << "SKIPPED, NOT TESTED: " << devices.status();
    }
    device_ = CudaDevice::Create(0, std::make_shared<NoCollectives>()).value();
  }
  std::unique_ptr<CudaDevice> device_;
};

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  const DeviceProperties& properties = device_->properties();
  EXPECT_FALSE(properties.name.empty());
  EXPECT_EQ(properties.backend, "neuroshard-cuda");
  EXPECT_GT(properties.memory_bytes, kGiB);
  EXPECT_THAT(properties.details, ::testing::Contains(::testing::Key("compute_capability")));
  EXPECT_THAT(properties.embedding.compute_kernels,
              ::testing::ElementsAre(ComputeKernel::kFused, ComputeKernel::kFusedUvm,
                                     ComputeKernel::kFusedUvmCaching));
  for (const auto& [key, value] : device_->Conditions()) {
    std::cout << key << "=" << value << "\n";
  }
}

// A large fill takes longer than a small one, and nothing takes next to nothing although enqueueing
// it is slow.
TEST_F(CudaDeviceTest, TimesTheDeviceAndNotTheHost) {
  for (int i = 0; i < 3; ++i) device_->TimeMs([&] { device_->FlushCache(); });
  const double flush_ms = device_->TimeMs([&] { device_->FlushCache(); });
  EXPECT_GT(flush_ms, 0.01);  // 128 MiB
  EXPECT_LT(flush_ms, 5);
  EXPECT_LT(device_->TimeMs([] {}), 0.1);
  const double four_ms = device_->TimeMs([&] {
    for (int i = 0; i < 4; ++i) device_->FlushCache();
  });
  EXPECT_GT(four_ms, 2 * flush_ms);
}

TEST_F(CudaDeviceTest, AGateHoldsWhatIsEnqueuedUntilItOpensOrItsLimitIsOver) {
  const std::shared_ptr<cuda::CudaGpu>& gpu = device_->gpu();
  cuda::GpuBuffer buffer(gpu);
  ASSERT_TRUE(buffer.Reserve(4096).ok());
  cuda::DeviceGate gate(gpu);
  ASSERT_TRUE(gate.Prepare().ok());
  gate.Close(std::chrono::seconds(20));
  ASSERT_EQ(cudaMemsetAsync(buffer.at(0), 1, 4096, gpu->stream()), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(gpu->stream()), cudaErrorNotReady);
  (void)cudaGetLastError();
  EXPECT_TRUE(device_->Health().ok()) << "busy is not broken";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(gate.Open()) << "held until now";
  EXPECT_EQ(cudaStreamSynchronize(gpu->stream()), cudaSuccess);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  gate.Close(std::chrono::milliseconds(1));
  EXPECT_EQ(cudaStreamSynchronize(gpu->stream()), cudaSuccess);
  EXPECT_FALSE(gate.Open()) << "its limit had passed";
}

// What bandwidths are compared with moves every byte, also of sizes that fill no block.
TEST_F(CudaDeviceTest, CopyingMovesEveryByte) {
  const std::shared_ptr<cuda::CudaGpu>& gpu = device_->gpu();
  for (const std::int64_t bytes : {16, 4096, 1 << 20, (1 << 20) + 48}) {
    std::vector<std::uint8_t> sent(bytes), got(bytes);
    for (std::int64_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::uint8_t>(i * 37 >> 3);
    cuda::GpuBuffer from(gpu), to(gpu);
    ASSERT_TRUE(from.Reserve(bytes).ok());
    ASSERT_TRUE(to.Reserve(bytes).ok());
    ASSERT_TRUE(gpu->CopyIn(from.at(0), sent.data(), bytes).ok());
    EXPECT_EQ(cuda::LaunchCopy(to.at(0), from.at(0), bytes, gpu->stream()), cudaSuccess);
    ASSERT_TRUE(gpu->CopyOut(got.data(), to.at(0), bytes).ok());
    EXPECT_EQ(got, sent);
  }
}

TEST_F(CudaDeviceTest, StaysUsableAfterOutOfMemory) {
  EmbeddingOpSpec spec;
  spec.batch_size = 4;
  for (int round = 0; round < 2; ++round) {
    spec.tables = {{device_->properties().memory_bytes / 4, 2, PoolingMode::kSum}};
    EXPECT_EQ(device_->CreateEmbeddingOp(spec).status().code(),
              absl::StatusCode::kResourceExhausted);
    spec.tables = {{1000, 16, PoolingMode::kSum}};
    EXPECT_TRUE(device_->CreateEmbeddingOp(spec).ok());
  }
  EXPECT_TRUE(device_->Health().ok());
}

// Exit status 0: the device knew of an error of another stream, as that of a collective.
[[noreturn]] void FailElsewhereAndLook(CudaDevice& device) {
  const auto other = cuda::CudaGpu::Create(0).value();
  int code = device.Health().ok() ? 0 : 1;
  // An address of the first page, which no driver maps. (2^40 can be read on an H100.)
  (void)cuda::LaunchRead(reinterpret_cast<void*>(std::uintptr_t{256}), 256, other->stream());
  (void)cudaStreamSynchronize(other->stream());
  if (device.Health().code() != absl::StatusCode::kInternal) code = 2;
  EmbeddingOpSpec spec;
  spec.batch_size = 1;
  spec.tables = {{10, 4, PoolingMode::kSum}};
  if (device.CreateEmbeddingOp(spec).ok()) code = 3;
  if (!std::isnan(device.TimeMs([] {}))) code = 4;
  std::cerr << device.Health() << "\n";
  std::_Exit(code);
}

// In a process of its own, whose last error it is.
TEST_F(CudaDeviceTest, ErrorsThatCannotBeUndonePoisonTheDevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(FailElsewhereAndLook(*device_), ::testing::ExitedWithCode(0), "illegal|unspecified");
}

// What compute-sanitizer runs (bench/gpu/run.sh): every kernel, and little more. That none is left
// out is checked on the fake runtime (tests/fake_gpu/every_kernel_test.sh).
TEST_F(CudaDeviceTest, EveryKernelOnce) {
  RunEveryLookupKernel(
      [this](const EmbeddingOpSpec& spec) { return device_->CreateEmbeddingOp(spec); });
  constexpr std::int64_t kBytes = 4096;
  cuda::GpuBuffer from(device_->gpu()), to(device_->gpu());
  ASSERT_TRUE(from.Reserve(kBytes).ok());
  ASSERT_TRUE(to.Reserve(kBytes).ok());
  cuda::CudaGpu& gpu = *device_->gpu();
  ASSERT_EQ(cudaMemsetAsync(from.at(0), 0, kBytes, gpu.stream()), cudaSuccess);
  EXPECT_GT(device_->TimeMs([&] {
    (void)cuda::LaunchCopy(to.at(0), from.at(0), kBytes, gpu.stream());
    (void)cuda::LaunchRead(to.at(0), kBytes, gpu.stream());
  }),
            0);
  EXPECT_TRUE(device_->Health().ok()) << device_->Health();
}

// Beyond 2^31 elements and 2^33 bytes of one table: rows at both ends.
TEST_F(CudaDeviceTest, LargeTablesReachTheirLastRow) {
  constexpr std::int64_t kRows = std::int64_t{20} << 20, kCols = 128;  // 10 GiB
  EmbeddingOpSpec spec;
  spec.batch_size = 2;
  spec.learning_rate = 1;
  spec.tables = {{kRows, kCols, PoolingMode::kSum}};
  auto op = device_->CreateEmbeddingOp(spec);
  if (!op.ok()) GTEST_SKIP() << "SKIPPED, NOT TESTED: " << op.status();
  ASSERT_TRUE((*op)->SetInputs({{{kRows - 1, 0}, {0, 1, 2}, {}}}).ok());
  (*op)->Forward();
  const std::vector<float> before = ContentsOf(**op)->Output();
  ASSERT_TRUE(ContentsOf(**op)->SetOutputGradient(std::vector<float>(2 * kCols, 0.5F)).ok());
  (*op)->Backward();
  (*op)->Forward();
  const std::vector<float> after = ContentsOf(**op)->Output();
  for (std::size_t i = 0; i < after.size(); ++i) ASSERT_EQ(after[i], before[i] - 0.5F);
}

TEST(NvmlTest, ThrottleReasonsInWords) {
  EXPECT_EQ(cuda::DescribeThrottleReasons(0), "none");
  EXPECT_EQ(cuda::DescribeThrottleReasons(0x1), "none");  // idle
  EXPECT_EQ(cuda::DescribeThrottleReasons(0x44), "0x44 (sw_power_cap hw_thermal_slowdown)");
}

// Of the fake library of tests/fake_gpu, which is one of a driver before 535.
TEST(NvmlTest, ReadsWhatTheLibraryTells) {
  const auto read = [](const std::string& bus) {
    const auto nvml = cuda::Nvml::Open(bus);
    return nvml == nullptr ? std::map<std::string, std::string>{} : nvml->Read();
  };
  if (std::getenv("FAKE_NVML_FAIL") == nullptr) {
    GTEST_SKIP() << "SKIPPED, NOT TESTED: there is no fake NVML";
  }
  const std::string first = "fa4e:00:00.0";
  std::map<std::string, std::string> all = {
      {"nvml_sm_clock_mhz", "1980"},      {"nvml_memory_clock_mhz", "2619"},
      {"nvml_temperature_celsius", "41"}, {"nvml_power_mw", "350000"},
      {"nvml_throttle_reasons", "none"},  {"nvml_driver", "530.30.02"}};
  EXPECT_EQ(read(first), all);
  EXPECT_EQ(read("fa4e:01:00.0")["nvml_throttle_reasons"], "0x4 (sw_power_cap)");
  setenv("FAKE_NVML_FAIL", "nvmlDeviceGetPowerUsage", 1);
  all.erase("nvml_power_mw");
  EXPECT_EQ(read(first), all);
  for (const char* call : {"nvmlInit_v2", "nvmlDeviceGetHandleByPciBusId_v2"}) {
    setenv("FAKE_NVML_FAIL", call, 1);
    EXPECT_EQ(read(first), (std::map<std::string, std::string>{})) << call;
  }
  unsetenv("FAKE_NVML_FAIL");
}

TEST(NvmlTest, NothingIsSaidOfAnUnknownDevice) {
  EXPECT_EQ(cuda::Nvml::Open("ffff:ff:1f.7"), nullptr);
}

TEST(WhyNoDeviceTest, NamesBothVersionsWhereTheDriverIsTooOld) {
  EXPECT_THAT(
      cuda::WhyNoDevice(cudaErrorInsufficientDriver, 12040, 13000),
      ::testing::AllOf(::testing::HasSubstr("up to 12.4"), ::testing::HasSubstr("with 13.0")));
  EXPECT_THAT(cuda::WhyNoDevice(cudaErrorInsufficientDriver, 0, 13000),
              ::testing::HasSubstr("no NVIDIA driver"));
  EXPECT_THAT(cuda::WhyNoDevice(cudaErrorNoDevice, 13000, 13000),
              ::testing::HasSubstr("no CUDA-capable device"));
  EXPECT_THAT(cuda::WhyNoDevice(cudaSuccess, 13010, 13000),
              ::testing::HasSubstr("no CUDA-capable device"));
}

}  // namespace
}  // namespace neuroshard::testing
