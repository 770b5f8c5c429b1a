#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "client/sweep/shared_sweep.h"

namespace neuroshard {
namespace {

// A stream to one device of a worker.
class DeviceRunner final : public SampleRunner<ComputeSample> {
 public:
  DeviceRunner(const SweepRun& run, const WorkerClient& worker, int device)
      : run_(run), worker_(worker), device_(device) {}

  std::string name() const override { return fmt::format("device {}", device_); }

  // The worker is asked first, so that one that is away does not use up the attempts of samples.
  Status Open() override {
    NS_RETURN_IF_ERROR(worker_.GetWorkerInfo().status());
    stream_ = worker_.OpenComputeStream(device_, run_.settings);
    return absl::OkStatus();
  }

  StatusOr<StoredRecord> Measure(const ComputeSample& sample) override {
    NS_ASSIGN_OR_RETURN(const ComputeMeasurement measurement,
                        stream_->Measure(sample, run_.fleet.sample_deadline));
    return StoredRecord{run_.store.AddComputeMeasurement(run_.sweep_id, measurement),
                        measurement.outcome == Outcome::kOutOfMemory};
  }

  void Close() override {
    if (stream_) Status ignored = stream_->Finish();  // every record of it is already stored
    stream_.reset();
  }

 private:
  const SweepRun& run_;
  const WorkerClient& worker_;
  const int device_;
  std::unique_ptr<ComputeStream> stream_;
};

class ComputeSweep {
 public:
  ComputeSweep(const SweepRun& run, std::vector<ComputeSample> pending)
      : run_(run), shared_(run), kernels_(KernelsOf(pending)), queue_(std::move(pending)) {}

  SweepReport Run() {
    if (queue_.unsettled() == 0) return {};
    std::vector<std::function<void()>> loops;
    for (const auto& worker : shared_.workers()) {
      loops.push_back([this, &worker] { WorkerLoop(*worker); });
    }
    const bool stopped = RunMonitored(loops, run_.stop, run_.display, [this] {
      queue_.Close();
      shared_.Stop();
    });
    if (queue_.unsettled() > 0) {
      shared_.Fail(stopped ? absl::CancelledError("stopped")
                           : Unavailable("no worker is left, {} samples are not measured yet",
                                         queue_.unsettled()));
    }
    return shared_.report();
  }

 private:
  static std::set<ComputeKernel> KernelsOf(const std::vector<ComputeSample>& samples) {
    std::set<ComputeKernel> kernels;
    for (const ComputeSample& sample : samples) {
      for (const MeasuredShard& shard : sample.shards) kernels.insert(shard.compute_kernel);
    }
    return kernels;
  }

  // Finds the worker's devices, then feeds each in a thread of its own.
  void WorkerLoop(const WorkerClient& worker) {
    RetryWindow retries(run_);
    StatusOr<v1::WorkerInfo> info = worker.GetWorkerInfo();
    if (!info.ok()) run_.display.Note(Message(info.status()));
    while (!info.ok()) {
      if (!retries.WaitToRetry(shared_.waits().get_token())) {
        return NoteLost({worker.address(), std::nullopt, Message(info.status())});
      }
      info = worker.GetWorkerInfo();
    }
    if (info->devices().empty())
      run_.display.Note(fmt::format("worker at {}: has no devices", worker.address()));
    const int limit = run_.fleet.devices_per_worker;
    const int used = limit > 0 ? std::min(limit, info->devices_size()) : info->devices_size();
    std::vector<std::thread> devices;
    for (int i = 0; i < used; ++i) {
      const v1::WorkerDevice& device = info->devices(i);
      if (!HasAllKernels(worker.address(), device)) continue;
      devices.emplace_back([this, &worker, index = device.index()] { DeviceLoop(worker, index); });
    }
    for (std::thread& device : devices) device.join();
  }

  // A worker of before tables in host memory would measure them in the device's and not say so.
  bool HasAllKernels(const std::string& address, const v1::WorkerDevice& device) {
    for (const ComputeKernel kernel : kernels_) {
      if (Measures(device, kernel)) continue;
      const std::string reason =
          fmt::format("does not measure {}, which this sweep has samples of", ToText(kernel));
      run_.display.Note(
          fmt::format("{} device {}: left out: it {}", address, device.index(), reason));
      shared_.Lost({address, device.index(), reason});
      return false;
    }
    return true;
  }

  void DeviceLoop(const WorkerClient& worker, int device) {
    DeviceRunner runner(run_, worker, device);
    const Status status = shared_.MeasureAll(runner, queue_);
    if (!status.ok()) return NoteLost({worker.address(), device, Message(status)});
    if (queue_.unsettled() == 0)
      shared_.waits().request_stop();  // who waits for a lost worker need not
  }

  // Dropped, or still away when the others have measured everything.
  void NoteLost(LostWorker lost) {
    if (!shared_.stopped()) {
      const std::string device =
          lost.device.has_value() ? fmt::format(" device {}", *lost.device) : "";
      run_.display.Note(fmt::format("{}{}: dropped after {} s without success: {}", lost.worker,
                                    device, run_.fleet.reconnect_window.count() / 1000,
                                    lost.reason));
    } else if (queue_.unsettled() > 0) {
      return;  // the run was stopped: nothing is said about this worker
    }
    shared_.Lost(std::move(lost));
  }

  const SweepRun& run_;
  SharedSweep shared_;
  const std::set<ComputeKernel> kernels_;  // of all samples
  SampleQueue<ComputeSample> queue_;
};

}  // namespace

SweepReport RunSweep(const SweepRun& run, std::vector<ComputeSample> pending) {
  return ComputeSweep(run, std::move(pending)).Run();
}

}  // namespace neuroshard
