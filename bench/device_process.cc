// device_process [SAMPLES [STARTS]]: what it costs that a device is driven by a process of its own.
// It measures the same samples on one device, here and in the worker's kind of child, in turn:
// - first measurement: from no device to its first record, and how much longer in a child;
// - measured values: the child's cost / this process's, beside that of a second device in this
//   process, which is the noise of the machine.
#include "worker/process/device_process.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string_view>

#include "common/base/random.h"
#include "worker/process/device_server.h"
#include "worker/process/worker_devices.h"

namespace neuroshard {
namespace {

using Opener = std::function<StatusOr<std::unique_ptr<DeviceSession>>()>;

internal::OpenDevice OneCpu() {
  internal::OpenDevice device;
  device.set_backend("cpu");
  device.set_cpu_devices(1);
  device.set_cpu_memory_per_device_bytes(std::int64_t{2} << 30);
  return device;
}

StatusOr<std::unique_ptr<DeviceSession>> OpenChild() {
  DeviceProcessOptions options;
  options.device = OneCpu();
  return DeviceProcess::Start(std::move(options));
}

ComputeSample MakeSample(std::uint64_t seed) {
  Random random(seed);
  ComputeSample sample{.sample_id = "s", .shards = {}, .batch_size = 4096, .seed = seed};
  for (int i = 0; i < 4; ++i) {
    MeasuredShard shard;
    shard.table = "t" + std::to_string(i);
    shard.rows = random.Between(10'000, 500'000);
    shard.cols = 4 * random.Between(2, 16);
    shard.pooling_factor = 1 + 9 * random.UniformReal();
    shard.reuse_histogram[0] = 0.7;
    shard.reuse_histogram[3] = 0.3;
    sample.shards.push_back(shard);
  }
  return sample;
}

StatusOr<double> Measure(DeviceSession& device, std::uint64_t seed) {
  const MeasurementSettings settings;
  NS_ASSIGN_OR_RETURN(const ComputeMeasurement record,
                      device.MeasureCompute(MakeSample(seed), settings, NeverStop()));
  return record.total_ms();
}

StatusOr<double> FirstMeasurementMs(const Opener& open) {
  const auto begin = std::chrono::steady_clock::now();
  NS_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceSession> device, open());
  NS_RETURN_IF_ERROR(Measure(*device, 0).status());
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

double At(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

void PrintRatios(const char* of, const std::vector<double>& ratios) {
  std::cout << fmt::format("{}: median {:.3f}, p10 {:.3f}, p90 {:.3f}\n", of, At(ratios, 0.5),
                           At(ratios, 0.1), At(ratios, 0.9));
}

Status Compare(int samples, int starts) {
  const Opener open_here = [] { return OpenDeviceHere(OneCpu()); };
  std::vector<double> here_ms;
  std::vector<double> child_ms;
  for (int i = 0; i < starts; ++i) {
    NS_ASSIGN_OR_RETURN(here_ms.emplace_back(), FirstMeasurementMs(open_here));
    NS_ASSIGN_OR_RETURN(child_ms.emplace_back(), FirstMeasurementMs(OpenChild));
  }
  std::cout << fmt::format(
      "first measurement, median of {} starts: {:.1f} ms in this process, {:.1f} ms in a child\n",
      starts, At(here_ms, 0.5), At(child_ms, 0.5));

  NS_ASSIGN_OR_RETURN(const auto here, open_here());
  NS_ASSIGN_OR_RETURN(const auto again, open_here());
  NS_ASSIGN_OR_RETURN(const auto child, OpenChild());
  const std::vector<DeviceSession*> devices = {here.get(), again.get(), child.get()};
  std::vector<double> again_ratios;
  std::vector<double> child_ratios;
  for (int i = 0; i < samples; ++i) {
    std::vector<double> cost_ms(devices.size());
    for (std::size_t d = 0; d < devices.size(); ++d) {
      const std::size_t turn = (d + static_cast<std::size_t>(i)) % devices.size();
      NS_ASSIGN_OR_RETURN(cost_ms[turn],
                          Measure(*devices[turn], static_cast<std::uint64_t>(i) + 1));
    }
    again_ratios.push_back(cost_ms[1] / cost_ms[0]);
    child_ratios.push_back(cost_ms[2] / cost_ms[0]);
  }
  std::cout << samples << " samples, cost / cost in this process\n";
  PrintRatios("  in a child", child_ratios);
  PrintRatios("  in this process again", again_ratios);
  return absl::OkStatus();
}

}  // namespace
}  // namespace neuroshard

int main(int argc, char** argv) {
  if (argc == 2 && argv[1] == std::string_view(neuroshard::kDeviceProcessArgument)) {
    neuroshard::RunDeviceProcess(neuroshard::OpenDeviceHere);
  }
  const int samples = argc > 1 ? std::atoi(argv[1]) : 40;
  const int starts = argc > 2 ? std::atoi(argv[2]) : 10;
  if (samples < 1 || starts < 1 || argc > 3) {
    std::cerr << "usage: device_process [SAMPLES [STARTS]]\n";
    return 2;
  }
  const neuroshard::Status status = neuroshard::Compare(samples, starts);
  if (status.ok()) return 0;
  std::cerr << "device_process: " << neuroshard::Message(status) << "\n";
  return 1;
}
