#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "client/stub/call_policy.h"
#include "client/stub/worker_client.h"
#include "client/sweep/sweep_run.h"
#include "client/sweep/sweep_threads.h"

namespace neuroshard {
namespace {

class ComputeSweep {
 public:
  ComputeSweep(const SweepRun& run, std::vector<ComputeSample> pending)
      : run_(run),
        kernels_(KernelsOf(pending)),
        queue_(std::move(pending)),
        tally_(run.display, run.fleet.max_given_up) {}

  SweepReport Run() {
    if (queue_.unsettled() == 0) return {};
    std::vector<std::function<void()>> loops;
    for (const std::string& address : run_.fleet.workers) {
      loops.push_back([this, address] { WorkerLoop(address); });
    }
    const bool stopped = RunMonitored(loops, run_.stop, run_.display, [this] { StopAll(); });
    if (queue_.unsettled() > 0) {
      tally_.Fail(stopped ? absl::CancelledError("stopped")
                          : Unavailable("no worker is left, {} samples are not measured yet",
                                        queue_.unsettled()));
    }
    return tally_.report();
  }

 private:
  static std::set<ComputeKernel> KernelsOf(const std::vector<ComputeSample>& samples) {
    std::set<ComputeKernel> kernels;
    for (const ComputeSample& sample : samples) {
      for (const MeasuredShard& shard : sample.shards) kernels.insert(shard.compute_kernel);
    }
    return kernels;
  }

  void StopAll() {
    queue_.Close();
    latch_.Stop();
    streams_.CancelAll();
  }

  // Finds the worker's devices, then feeds each in a thread of its own.
  void WorkerLoop(const std::string& address) {
    // RetryWindow does the retries.
    const WorkerClient client(address, {.tls = run_.fleet.tls, .max_attempts = 1});
    RetryWindow retries(run_);
    StatusOr<v1::WorkerInfo> info = client.GetWorkerInfo();
    if (!info.ok()) run_.display.Note(Message(info.status()));
    while (!info.ok()) {
      if (!retries.WaitToRetry(latch_))
        return NoteLost({address, std::nullopt, Message(info.status())});
      info = client.GetWorkerInfo();
    }
    if (info->devices().empty())
      run_.display.Note(fmt::format("worker at {}: has no devices", address));
    const int limit = run_.fleet.devices_per_worker;
    const int used = limit > 0 ? std::min(limit, info->devices_size()) : info->devices_size();
    std::vector<std::thread> devices;
    for (int i = 0; i < used; ++i) {
      const v1::WorkerDevice& device = info->devices(i);
      if (!HasAllKernels(address, device)) continue;
      devices.emplace_back([this, &client, index = device.index()] { DeviceLoop(client, index); });
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
      tally_.Lost({address, device.index(), reason});
      return false;
    }
    return true;
  }

  void DeviceLoop(const WorkerClient& client, int device) {
    RetryWindow retries(run_);
    bool reported = false;  // a fault is told once, until something works again
    while (true) {
      // Asked first, so that a worker that is away does not use up the attempts of samples.
      Status status = client.GetWorkerInfo().status();
      if (status.ok()) status = MeasureOnStream(client, device, retries, reported);
      if (status.ok()) return;
      if (!reported && !latch_.Stopped())
        run_.display.Note(fmt::format("device {}: {}; trying again", device, Message(status)));
      reported = true;
      if (!retries.WaitToRetry(latch_))
        return NoteLost({client.address(), device, Message(status)});
    }
  }

  // Dropped, or still away when the others have measured everything.
  void NoteLost(LostWorker lost) {
    if (!latch_.Stopped()) {
      const std::string device =
          lost.device.has_value() ? fmt::format(" device {}", *lost.device) : "";
      run_.display.Note(fmt::format("{}{}: dropped after {} s without success: {}", lost.worker,
                                    device, run_.fleet.reconnect_window.count() / 1000,
                                    lost.reason));
    } else if (queue_.unsettled() > 0) {
      return;  // the run was stopped: nothing is said about this worker
    }
    tally_.Lost(std::move(lost));
  }

  // OK: nothing is left to measure.
  Status MeasureOnStream(const WorkerClient& client, int device, RetryWindow& retries,
                         bool& reported) {
    const std::unique_ptr<ComputeStream> stream = client.OpenComputeStream(device, run_.settings);
    streams_.Add(stream.get());
    Status status = MeasureUntilBroken(*stream, retries, reported);
    streams_.Remove(stream.get());
    return status;
  }

  Status MeasureUntilBroken(ComputeStream& stream, RetryWindow& retries, bool& reported) {
    while (std::optional<ComputeAttempt> attempt = queue_.Take()) {
      const StatusOr<ComputeMeasurement> measurement =
          stream.Measure(attempt->sample, run_.fleet.sample_deadline);
      if (!measurement.ok()) {
        HandleFailure(std::move(*attempt), measurement.status(), retries);
        return measurement.status();
      }
      const Status stored = run_.store.AddComputeMeasurement(run_.sweep_id, *measurement);
      queue_.Settle();
      if (!tally_.Record(stored, measurement->outcome == Outcome::kOutOfMemory)) {
        tally_.Fail(stored);
        StopAll();
        return stored;
      }
      retries.Success();
      reported = false;
    }
    if (queue_.unsettled() == 0) latch_.Stop();  // whoever waits for a lost worker need not
    Status ignored = stream.Finish();            // every record of it is already stored
    return absl::OkStatus();
  }

  void HandleFailure(ComputeAttempt attempt, const Status& status, RetryWindow& retries) {
    const FailureKind kind = ClassifyFailure(status);
    if (kind == FailureKind::kConnection && !latch_.Stopped()) ++attempt.failures;
    if (kind != FailureKind::kSample && attempt.failures < run_.fleet.max_failures_per_sample) {
      queue_.Return(std::move(attempt));
      return;
    }
    const bool go_on = tally_.GiveUp(attempt.sample.sample_id, Message(status));
    queue_.Settle();
    // The worker did answer: it is the sample that does not work.
    if (kind == FailureKind::kSample) retries.Success();
    if (!go_on) StopAll();
  }

  const SweepRun& run_;
  const std::set<ComputeKernel> kernels_;  // of all samples
  SampleQueue queue_;
  SweepTally tally_;
  StopLatch latch_;
  OpenStreams streams_;
};

}  // namespace

SweepReport RunComputeSweep(const SweepRun& run, std::vector<ComputeSample> pending) {
  return ComputeSweep(run, std::move(pending)).Run();
}

}  // namespace neuroshard
