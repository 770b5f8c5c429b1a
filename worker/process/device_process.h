// A device driven by a child process of its own, so that nothing that a driver, a library or a peer
// does to it can end the worker.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "neuroshard/internal/device_process.pb.h"
#include "worker/device/device_executor.h"
#include "worker/device/device_session.h"
#include "worker/process/device_messages.h"

namespace neuroshard {

// How the process is started, and how long it is waited for.
struct DeviceProcessOptions {
  internal::OpenDevice device;
  // Called with kDeviceProcessArgument it is a device's process. The default is this process's own
  // binary, also when the file was replaced since.
  std::string program = "/proc/self/exe";
  // The time until the device is open; a GPU's driver takes seconds on a cold host.
  std::chrono::milliseconds start_timeout{120'000};
  // The time from a stop or cut-off, or for calls that take no time, to SIGKILL. A compute sample
  // looks at its stop once an iteration, the largest of which take seconds.
  std::chrono::milliseconds kill_grace{10'000};
};

// The process lives from Start on and stays between leases, warm; Prepare starts a new one when it
// has ended. It ends with this object, and with this process however that ends. The thread that
// starts it lives as long as the object does, since PR_SET_PDEATHSIG is about the starting thread.
class DeviceProcess final : public DeviceSession {
 public:
  // Told of every end that was not asked for, with what ended it.
  using DeathObserver = std::function<void(int device, const std::string& how)>;

  // UNAVAILABLE with the reason when the process does not start or its device cannot be opened.
  static StatusOr<std::unique_ptr<DeviceProcess>> Start(DeviceProcessOptions options,
                                                        DeathObserver observer = nullptr);
  ~DeviceProcess() override;

  const DeviceProperties& properties() const override { return properties_; }
  Status Prepare() override;
  StatusOr<ComputeMeasurement> MeasureCompute(const ComputeSample& sample,
                                              const MeasurementSettings& settings,
                                              const StopSignal& stop) override;
  StatusOr<std::string> OpenRank(const CommunicatorSpec& spec) override;
  Status ConnectRank(const std::vector<RankAddress>& addresses) override;
  StatusOr<CommMeasurement> MeasureComm(const CommSample& sample,
                                        const MeasurementSettings& settings,
                                        const StopSignal& stop) override;
  void CloseRank() override;
  void CutOff() override;

  // The process, for tests; 0: none runs.
  pid_t pid() const { return pid_; }

 private:
  DeviceProcess(DeviceProcessOptions options, DeathObserver observer)
      : options_(std::move(options)), observer_(std::move(observer)) {}

  // Starts the process and opens its device.
  Status Launch();
  Status Spawn();
  // Sends the call and waits for its answer, no longer than `limit` if that is not zero, or
  // kill_grace after the stop or a cut-off. INTERNAL, with how it ended, when the process ended.
  StatusOr<internal::DeviceAnswer> Call(internal::DeviceCall call, const StopSignal& stop,
                                        std::chrono::milliseconds limit);
  // Kills the process if it still runs, waits for it, and says how it ended.
  Status Reap(const std::string& why_killed);

  const DeviceProcessOptions options_;
  const DeathObserver observer_;
  DeviceProperties properties_;
  std::atomic<pid_t> pid_{0};
  std::uint64_t calls_ = 0;
  std::string how_it_ended_ = "it was never started";
  Mutex socket_mutex_;  // against CutOff
  std::shared_ptr<MessageSocket> socket_ NS_GUARDED_BY(socket_mutex_);
  std::atomic<bool> cut_off_{false};
  DeviceExecutor starter_;
};

}  // namespace neuroshard
