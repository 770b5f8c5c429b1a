#include "worker/process/worker_devices.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <future>
#include <utility>

#include "worker/device/local_device_session.h"
#include "worker/options/device_specs.h"
#include "worker/process/device_messages.h"

namespace neuroshard {
namespace {

std::int64_t UnixTimeMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

StatusOr<StartedDevices> StartDevices(const WorkerOptions& options,
                                      const DeviceProcess::DeathObserver& observer) {
  NS_ASSIGN_OR_RETURN(const ChosenDevices chosen, ChooseDevices(options));
  // By the number among the chosen: the one among the usable.
  auto numbers = std::make_shared<std::vector<std::atomic<int>>>(chosen.specs.size());
  const DeviceProcess::DeathObserver renumbered = [observer, numbers](int device,
                                                                      const std::string& how) {
    if (observer) observer((*numbers)[static_cast<std::size_t>(device)], how);
  };
  std::vector<std::future<StatusOr<std::unique_ptr<DeviceProcess>>>> starting;
  for (std::size_t i = 0; i < chosen.specs.size(); ++i) {
    starting.push_back(std::async(std::launch::async, [&, i] {
      return DeviceProcess::Start({.device = EncodeOpenDevice(chosen.options, static_cast<int>(i))},
                                  renumbered);
    }));
  }
  std::vector<StatusOr<std::unique_ptr<DeviceSession>>> opened;
  int usable = 0;
  for (std::size_t i = 0; i < starting.size(); ++i) {
    auto device = starting[i].get();
    (*numbers)[i] = usable;
    if (device.ok()) ++usable;
    opened.emplace_back(std::move(device));
  }
  NS_ASSIGN_OR_RETURN(
      StartedDevices started,
      KeepUsable(std::move(opened), chosen.options.backend == WorkerBackend::kCuda));
  started.why_not_cuda = chosen.why_not_cuda;
  return started;
}

Status TryDevices(const WorkerOptions& options) {
  NS_ASSIGN_OR_RETURN(const ChosenDevices chosen, ChooseDevices(options));
  if (chosen.options.backend == WorkerBackend::kCuda) return absl::OkStatus();
  return chosen.specs.front().create().status();  // all CPU devices are alike
}

StatusOr<StartedDevices> KeepUsable(std::vector<StatusOr<std::unique_ptr<DeviceSession>>> opened,
                                    bool may_leave_out) {
  StartedDevices started;
  Status first;
  for (std::size_t i = 0; i < opened.size(); ++i) {
    if (opened[i].ok()) {
      started.devices.push_back(*std::move(opened[i]));
      continue;
    }
    const Status fault = Annotate(opened[i].status(), fmt::format("device {}", i));
    if (first.ok()) first = fault;
    started.left_out.push_back(Message(fault));
  }
  if (!first.ok() && (started.devices.empty() || !may_leave_out)) return first;
  return started;
}

StatusOr<std::unique_ptr<DeviceSession>> OpenDeviceHere(const internal::OpenDevice& request) {
  // For the life of the process.
  static const SteadyTimekeeper time;
  static const RecordStamp stamp(IdentifyHost(), UnixTimeMs);
  NS_ASSIGN_OR_RETURN(const WorkerOptions options, DecodeOpenDevice(request));
  NS_ASSIGN_OR_RETURN(const ChosenDevices chosen, ChooseDevices(options));
  if (request.index() < 0 || request.index() >= static_cast<int>(chosen.specs.size())) {
    return Unavailable("there are only {} devices now", chosen.specs.size());
  }
  return LocalDeviceSession::Open(chosen.specs[request.index()], stamp, time);
}

}  // namespace neuroshard
