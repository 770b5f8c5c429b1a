#include "client/validate/validation.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "client/stub/worker_client.h"
#include "client/sweep/comm_group.h"
#include "client/sweep/monitored_threads.h"
#include "client/sweep/open_streams.h"
#include "client/sweep/rank_placement.h"

namespace neuroshard {
namespace {

class Validation {
 public:
  Validation(const PlanRequest& request, const std::vector<RankShards>& ranks,
             const ValidationOptions& options, ProgressDisplay& display)
      : request_(request), ranks_(ranks), options_(options), display_(display) {
    report_.ranks.resize(ranks.size());
    compute_.resize(ranks.size());
    std::random_device random;
    report_.run_id =
        fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
    for (const std::string& address : options.workers)
      workers_.push_back(std::make_unique<WorkerClient>(address));
  }

  StatusOr<ValidationReport> Run(const StopSignal& stop) {
    Status status;
    const bool stopped =
        RunMonitored({[&] { status = MeasureAll(); }}, stop, display_, [this] { Cancel(); });
    if (stopped && !status.ok()) return absl::CancelledError("stopped");
    NS_RETURN_IF_ERROR(status);
    for (MeasuredComputeSample& measured : compute_) {
      if (!measured.sample.shards.empty()) report_.compute.push_back(std::move(measured));
    }
    return std::move(report_);
  }

 private:
  Status MeasureAll() {
    NS_RETURN_IF_ERROR(FindDevices());
    NS_RETURN_IF_ERROR(MeasureCompute());
    return MeasureComm();
  }

  // What is in flight ends now; the workers' devices are free again.
  void Cancel() {
    streams_.CancelAll();
    for (const auto& worker : workers_) worker->Cancel();
  }

  Status FindDevices() {
    std::vector<std::vector<int>> devices;
    std::size_t num_devices = 0;
    for (const auto& worker : workers_) {
      NS_ASSIGN_OR_RETURN(const WorkerDescription info, worker->GetWorkerInfo());
      devices.emplace_back();
      for (const WorkerDeviceDescription& device : info.devices)
        devices.back().push_back(device.index);
      num_devices += info.devices.size();
    }
    if (num_devices == 0) return FailedPrecondition("the workers have no devices");
    own_devices_ = num_devices >= ranks_.size();
    const int placed = static_cast<int>(std::min(num_devices, ranks_.size()));
    placement_ = *PlaceRanks(devices, placed);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankPlacement& device = DeviceOf(rank);
      report_.ranks[rank].worker = workers_[static_cast<std::size_t>(device.worker)]->address();
      report_.ranks[rank].device = device.device;
    }
    if (!own_devices_) {
      report_.notes.push_back(
          fmt::format("{} ranks on {} devices: ranks that share a device were looked up one after "
                      "the other, and "
                      "communication was not measured (it needs a device for every rank)",
                      ranks_.size(), num_devices));
    }
    return absl::OkStatus();
  }

  const RankPlacement& DeviceOf(std::size_t rank) const {
    return placement_[rank % placement_.size()];
  }

  Status MeasureCompute() {
    std::mutex mutex;
    Status first_failure;
    std::vector<std::thread> threads;
    for (std::size_t device = 0; device < placement_.size(); ++device) {
      threads.emplace_back([&, device] {
        const Status status = MeasureRanksOfDevice(device);
        if (status.ok()) return;
        const std::lock_guard lock(mutex);
        if (first_failure.ok()) first_failure = status;
        streams_.CancelAll();  // the others would measure for nothing
      });
    }
    for (std::thread& thread : threads) thread.join();
    return first_failure;
  }

  Status MeasureRanksOfDevice(std::size_t device) {
    const WorkerClient& worker = *workers_[static_cast<std::size_t>(placement_[device].worker)];
    const auto stream = worker.OpenComputeStream(placement_[device].device, options_.settings);
    streams_.Add(stream.get());
    const Status status = MeasureRanksOnStream(device, *stream);
    streams_.Remove(stream.get());
    return status;
  }

  // Writes only the entries of its own ranks.
  Status MeasureRanksOnStream(std::size_t device, ComputeStream& stream) {
    for (std::size_t rank = device; rank < ranks_.size(); rank += placement_.size()) {
      MeasuredRank& measured = report_.ranks[rank];
      if (ranks_[rank].shards.empty()) {
        measured.forward_compute_ms = 0;
        measured.backward_compute_ms = 0;
        continue;
      }
      display_.Note(fmt::format("compute of rank {}: {} shards on device {} of {}", rank,
                                ranks_[rank].shards.size(), measured.device, measured.worker));
      ComputeSample sample;
      sample.sample_id = fmt::format("rank-{}", rank);
      sample.shards = ranks_[rank].shards;
      sample.batch_size = request_.global_batch_size;
      sample.optimizer = request_.optimizer;
      sample.seed = rank;
      NS_ASSIGN_OR_RETURN(const ComputeMeasurement measurement,
                          stream.Measure(sample, options_.sample_deadline));
      compute_[rank] = {sample, measurement};
      if (measurement.outcome == Outcome::kOk) {
        measured.forward_compute_ms = measurement.forward.median_ms;
        measured.backward_compute_ms = measurement.backward.median_ms;
      } else {
        measured.problem = fmt::format("{}: {}", ToText(measurement.outcome), measurement.detail);
      }
    }
    return stream.Finish();
  }

  Status MeasureComm() {
    if (!own_devices_) return absl::OkStatus();
    if (ranks_.size() == 1) {
      report_.ranks[0].backward_comm_ms = 0;
      report_.ranks[0].forward_comm_ms = 0;
      return absl::OkStatus();
    }
    const auto num_ranks = static_cast<std::int64_t>(ranks_.size());
    if (request_.global_batch_size % num_ranks != 0) {
      report_.notes.push_back(fmt::format(
          "communication was not measured: global_batch_size {} is not a multiple of {} ranks",
          request_.global_batch_size, num_ranks));
      return absl::OkStatus();
    }
    std::vector<const WorkerClient*> clients;
    for (const auto& worker : workers_) clients.push_back(worker.get());
    const std::string group_id = "validate-" + report_.run_id;
    NS_ASSIGN_OR_RETURN(const auto group,
                        CommGroup::Open(clients, placement_, group_id, options_.group_timeout));
    display_.Note(fmt::format("communication between {} ranks, backward", num_ranks));
    NS_RETURN_IF_ERROR(
        MeasureCollective(*group, CommDirection::kBackward, &MeasuredRank::backward_comm_ms));
    if (!SetStartOffsets()) {
      report_.notes.push_back(
          "forward communication was not measured: its start offsets need compute and backward "
          "communication of "
          "every rank");
      return absl::OkStatus();
    }
    display_.Note(fmt::format("communication between {} ranks, forward", num_ranks));
    return MeasureCollective(*group, CommDirection::kForward, &MeasuredRank::forward_comm_ms);
  }

  // False when a rank lacks a measurement.
  bool SetStartOffsets() {
    double first_ms = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      MeasuredRank& measured = report_.ranks[rank];
      if (!measured.compute_ms() || !measured.backward_comm_ms) return false;
      measured.start_offset_ms = *measured.compute_ms() + *measured.backward_comm_ms;
      first_ms =
          rank == 0 ? measured.start_offset_ms : std::min(first_ms, measured.start_offset_ms);
    }
    for (MeasuredRank& measured : report_.ranks) measured.start_offset_ms -= first_ms;
    return true;
  }

  Status MeasureCollective(CommGroup& group, CommDirection direction,
                           std::optional<double> MeasuredRank::*stage) {
    CommSample sample;
    sample.sample_id = std::string(ToText(direction));
    sample.direction = direction;
    sample.batch_size = request_.global_batch_size;
    for (const RankShards& rank : ranks_) sample.dim_sums.push_back(rank.dim_sum);
    if (direction == CommDirection::kForward) {
      for (const MeasuredRank& rank : report_.ranks)
        sample.start_offsets_ms.push_back(rank.start_offset_ms);
    }
    NS_ASSIGN_OR_RETURN(const auto measurements,
                        group.Profile(options_.settings, sample, options_.sample_deadline));
    report_.comm.push_back({sample, measurements});
    for (const CommMeasurement& measurement : measurements) {
      MeasuredRank& measured = report_.ranks[static_cast<std::size_t>(measurement.rank)];
      if (measurement.outcome == Outcome::kOk) {
        measured.*stage = measurement.series.median_ms;
      } else if (measured.problem.empty()) {
        measured.problem = fmt::format("{}: {}", ToText(measurement.outcome), measurement.detail);
      }
    }
    return absl::OkStatus();
  }

  const PlanRequest& request_;
  const std::vector<RankShards>& ranks_;
  const ValidationOptions& options_;
  ProgressDisplay& display_;
  OpenStreams streams_;
  std::vector<std::unique_ptr<WorkerClient>> workers_;
  std::vector<RankPlacement> placement_;  // of the first ranks, one device each
  bool own_devices_ = false;              // every rank has a device of its own
  ValidationReport report_;
  // By rank; without shards where nothing was measured. Device threads write those of their ranks.
  std::vector<MeasuredComputeSample> compute_;
};

}  // namespace

std::optional<double> MeasuredRank::compute_ms() const {
  if (!forward_compute_ms || !backward_compute_ms) return std::nullopt;
  return *forward_compute_ms + *backward_compute_ms;
}

std::optional<double> MeasuredRank::total_ms() const {
  if (!compute_ms() || !backward_comm_ms || !forward_comm_ms) return std::nullopt;
  return *compute_ms() + *backward_comm_ms + *forward_comm_ms;
}

std::optional<double> ValidationReport::embedding_cost_ms() const {
  double cost_ms = 0;
  for (const MeasuredRank& rank : ranks) {
    if (!rank.total_ms()) return std::nullopt;
    cost_ms = std::max(cost_ms, *rank.total_ms());
  }
  return cost_ms;
}

StatusOr<ValidationReport> Validate(const PlanRequest& request,
                                    const std::vector<RankShards>& ranks,
                                    const ValidationOptions& options, const StopSignal& stop,
                                    ProgressDisplay& display) {
  return Validation(request, ranks, options, display).Run(stop);
}

}  // namespace neuroshard
