#include "worker/process/worker_devices.h"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <utility>

#include "worker/device/local_device_session.h"
#include "worker/device_specs.h"
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
                                      DeviceProcess::DeathObserver observer) {
  NS_ASSIGN_OR_RETURN(const ChosenDevices chosen, ChooseDevices(options));
  std::vector<std::future<StatusOr<std::unique_ptr<DeviceProcess>>>> starting;
  for (std::size_t i = 0; i < chosen.specs.size(); ++i) {
    starting.push_back(std::async(std::launch::async, [&, i] {
      return DeviceProcess::Start({.device = EncodeOpenDevice(chosen.options, static_cast<int>(i))},
                                  observer);
    }));
  }
  StartedDevices started{.devices = {}, .why_not_cuda = chosen.why_not_cuda};
  Status first;
  for (std::size_t i = 0; i < starting.size(); ++i) {
    auto device = starting[i].get();
    if (device.ok()) {
      started.devices.push_back(*std::move(device));
    } else if (first.ok()) {
      first = Annotate(device.status(), fmt::format("device {}", i));
    }
  }
  NS_RETURN_IF_ERROR(first);
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
