#include "client/validate/validation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "client/stub/worker_client.h"
#include "client/sweep/comm_group.h"
#include "client/sweep/shared_sweep.h"
#include "client/validate/plan_collectives.h"
#include "common/base/mutex.h"
#include "common/domain/backend_names.h"
#include "common/domain/rank_networks.h"

namespace neuroshard {
namespace {

// A worker that takes longer for a sample is treated as broken.
constexpr std::chrono::milliseconds kSampleDeadline{600'000};

// A sum of which a part is not known is not known.
void AddTo(std::optional<double>& sum_ms, double part_ms) {
  if (sum_ms) *sum_ms += part_ms;
}

// The first one stays.
void SetProblem(Outcome outcome, const std::string& detail, MeasuredRank& rank) {
  if (rank.problem.empty()) rank.problem = fmt::format("{}: {}", ToText(outcome), detail);
}

class Validation {
 public:
  Validation(const PlanRequest& request, const std::vector<RankShards>& ranks,
             const ValidationOptions& options, ProgressDisplay& display)
      : request_(request),
        ranks_(ranks),
        quantized_comms_(request.quantized_comms),
        options_(options),
        display_(display) {
    report_.ranks.resize(ranks.size());
    compute_.resize(ranks.size());
    std::random_device random;
    report_.run_id =
        fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
    const CallPolicy policy{.tls = options.tls};
    for (const std::string& address : options.workers)
      workers_.push_back(std::make_unique<WorkerClient>(address, policy));
  }

  StatusOr<ValidationReport> Run(const StopSignal& stop) {
    Status status;
    const bool stopped =
        RunMonitored({[&] { status = MeasureAll(); }}, stop, display_, [this] { Cancel(); });
    if (stopped && !status.ok()) return absl::CancelledError("stopped");
    NS_RETURN_IF_ERROR(status);
    for (std::vector<MeasuredComputeSample>& of_rank : compute_) {
      for (MeasuredComputeSample& measured : of_rank) {
        report_.compute.push_back(std::move(measured));
      }
    }
    for (std::string& note : NotesOn(ranks_)) report_.notes.push_back(std::move(note));
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
    for (const auto& worker : workers_) worker->Cancel();
  }

  Status FindDevices() {
    std::vector<std::vector<int>> devices;
    std::vector<v1::WorkerInfo> workers;
    std::size_t num_devices = 0;
    for (const auto& worker : workers_) {
      NS_ASSIGN_OR_RETURN(const v1::WorkerInfo info, worker->GetWorkerInfo());
      workers.push_back(info);
      devices.emplace_back();
      for (const v1::WorkerDevice& device : info.devices())
        devices.back().push_back(device.index());
      num_devices += devices.back().size();
    }
    if (num_devices == 0) return FailedPrecondition("the workers have no devices");
    for (const v1::WorkerInfo& worker : workers) {
      UseCastsOf(worker);
      for (const v1::WorkerDevice& device : worker.devices()) {
        distributes_ids_ = distributes_ids_ && device.collective_backend() == kNeuroshardTcp;
      }
    }
    own_devices_ = num_devices >= ranks_.size();
    const int placed = static_cast<int>(std::min(num_devices, ranks_.size()));
    placement_ = *PlaceRanks(devices, placed);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankPlacement& device = DeviceOf(rank);
      report_.ranks[rank].worker = workers_[static_cast<std::size_t>(device.worker)]->address();
      report_.ranks[rank].device = device.device;
      const v1::WorkerInfo& info = workers[static_cast<std::size_t>(device.worker)];
      for (const v1::WorkerDevice& description : info.devices()) {
        if (description.index() == device.device) UseKernelsOf(description, rank);
      }
    }
    if (!own_devices_) {
      report_.notes.push_back(fmt::format(
          "{} ranks on {} devices: ranks that share a device were looked up one after the other, "
          "and communication was not measured (it needs a device for every rank)",
          ranks_.size(), num_devices));
    }
    return absl::OkStatus();
  }

  // Tables whose kernel the device lacks are looked up in its own memory.
  void UseKernelsOf(const v1::WorkerDevice& device, std::size_t rank) {
    bool replaced = false;
    for (auto* shards : {&ranks_[rank].shards, &ranks_[rank].replicas}) {
      for (MeasuredShard& shard : *shards) {
        if (Measures(device, shard.compute_kernel)) continue;
        shard.compute_kernel = ComputeKernel::kFused;
        shard.cache_load_factor = 0;
        replaced = true;
      }
    }
    if (!replaced) return;
    report_.notes.push_back(
        fmt::format("tables in host memory (fused_uvm, fused_uvm_caching) of rank {} were looked "
                    "up in device memory: {} has no such kernel",
                    rank, report_.ranks[rank].worker));
  }

  // Collectives on GPUs have no casts here, so that one such worker takes them from all.
  void UseCastsOf(const v1::WorkerInfo& worker) {
    for (const v1::WorkerDevice& device : worker.devices()) {
      const std::string_view backend = device.collective_backend();
      if (backend == kNeuroshardTcp || backend == kTorchGloo) continue;
      const QuantizedComms asked = std::exchange(quantized_comms_, {});
      const auto casts = [](const std::optional<DataType>& dtype) {
        return dtype && IsWireCast(*dtype);
      };
      if (ranks_.size() == 1 || !(casts(asked.forward_dtype) || casts(asked.backward_dtype))) {
        return;
      }
      report_.notes.push_back(fmt::format(
          "quantized_comms is left out: {} has no casts here, vectors were exchanged in fp32",
          backend));
    }
  }

  const RankPlacement& DeviceOf(std::size_t rank) const {
    return placement_[rank % placement_.size()];
  }

  Status MeasureCompute() {
    Mutex mutex;
    Status first_failure;
    std::vector<std::thread> threads;
    for (std::size_t device = 0; device < placement_.size(); ++device) {
      threads.emplace_back([&, device] {
        const Status status = MeasureRanksOfDevice(device);
        if (status.ok()) return;
        const MutexLock lock(mutex);
        if (first_failure.ok()) first_failure = status;
        Cancel();  // the others would measure for nothing
      });
    }
    for (std::thread& thread : threads) thread.join();
    return first_failure;
  }

  Status MeasureRanksOfDevice(std::size_t device) {
    const WorkerClient& worker = *workers_[static_cast<std::size_t>(placement_[device].worker)];
    return MeasureRanksOnStream(
        device, *worker.OpenComputeStream(placement_[device].device, options_.settings));
  }

  // Writes only the entries of its own ranks.
  Status MeasureRanksOnStream(std::size_t device, ComputeStream& stream) {
    for (std::size_t rank = device; rank < ranks_.size(); rank += placement_.size()) {
      const RankShards& shards = ranks_[rank];
      MeasuredRank& measured = report_.ranks[rank];
      measured.forward_compute_ms = 0;
      measured.backward_compute_ms = 0;
      const std::size_t num_shards = shards.shards.size() + shards.replicas.size();
      if (num_shards == 0) continue;
      display_.Note(fmt::format("compute of rank {}: {} shards on device {} of {}", rank,
                                num_shards, measured.device, measured.worker));
      const auto num_ranks = static_cast<std::int64_t>(ranks_.size());
      const std::int64_t batch_size = request_.global_batch_size;
      NS_RETURN_IF_ERROR(
          MeasureLookups(fmt::format("rank-{}", rank), shards.shards, batch_size, rank, stream));
      // A trainer looks replicas up by themselves, for the samples that the rank was given.
      NS_RETURN_IF_ERROR(MeasureLookups(fmt::format("rank-{}-replicas", rank), shards.replicas,
                                        (batch_size + num_ranks - 1) / num_ranks, rank, stream));
    }
    return stream.Finish();
  }

  // Adds to what the rank's compute took; not known any more once a part does not fit.
  Status MeasureLookups(const std::string& sample_id, const std::vector<MeasuredShard>& shards,
                        std::int64_t batch_size, std::size_t rank, ComputeStream& stream) {
    if (shards.empty()) return absl::OkStatus();
    ComputeSample sample;
    sample.sample_id = sample_id;
    sample.shards = shards;
    sample.batch_size = batch_size;
    sample.optimizer = request_.optimizer;
    sample.seed = rank;
    NS_ASSIGN_OR_RETURN(const ComputeMeasurement measurement,
                        stream.Measure(sample, kSampleDeadline));
    compute_[rank].push_back({sample, measurement});
    MeasuredRank& measured = report_.ranks[rank];
    if (measurement.outcome == Outcome::kOk) {
      AddTo(measured.forward_compute_ms, measurement.forward.median_ms);
      AddTo(measured.backward_compute_ms, measurement.backward.median_ms);
    } else {
      measured.forward_compute_ms.reset();
      measured.backward_compute_ms.reset();
      SetProblem(measurement.outcome, measurement.detail, measured);
    }
    return absl::OkStatus();
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
    NS_ASSIGN_OR_RETURN(const auto group, CommGroup::Open(clients, placement_, group_id));
    NS_RETURN_IF_ERROR(MeasureInputDist(*group));
    NS_RETURN_IF_ERROR(
        MeasureStage(*group, CommDirection::kBackward, &MeasuredRank::backward_comm_ms));
    if (!SetStartOffsets()) {
      report_.notes.push_back(
          "forward communication was not measured: its start offsets need compute and backward "
          "communication of every rank");
      return absl::OkStatus();
    }
    return MeasureStage(*group, CommDirection::kForward, &MeasuredRank::forward_comm_ms);
  }

  Status MeasureInputDist(CommGroup& group) {
    if (!request_.pipeline_type) return absl::OkStatus();
    if (!distributes_ids_) {
      report_.notes.push_back(fmt::format(
          "the distribution of ids was not measured: only {} has it here", kNeuroshardTcp));
      return absl::OkStatus();
    }
    const auto samples = InputDistributionsOf(ranks_, request_.global_batch_size);
    if (!samples.ok()) {
      report_.notes.push_back(
          fmt::format("the distribution of ids was not measured: {}", Message(samples.status())));
      return absl::OkStatus();
    }
    report_.input_dist = *request_.pipeline_type == PipelineType::kNone ? InputDistUse::kExposed
                                                                        : InputDistUse::kHidden;
    for (MeasuredRank& measured : report_.ranks) measured.input_dist_ms = 0;
    for (const CommSample& sample : *samples) {
      display_.Note(fmt::format("distribution of ids to {} ranks{}", ranks_.size(),
                                sample.input_dist->weighted ? ", weighted" : ""));
      NS_RETURN_IF_ERROR(MeasureCollective(group, sample, &MeasuredRank::input_dist_ms));
    }
    for (std::string& note : InputDistNotesOn(ranks_)) report_.notes.push_back(std::move(note));
    return absl::OkStatus();
  }

  // False when a rank lacks a measurement.
  bool SetStartOffsets() {
    double first_ms = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      MeasuredRank& measured = report_.ranks[rank];
      if (!measured.compute_ms() || !measured.backward_comm_ms) return false;
      measured.start_offset_ms = *measured.compute_ms() + *measured.backward_comm_ms;
      if (report_.input_dist == InputDistUse::kExposed) {
        if (!measured.input_dist_ms) return false;
        measured.start_offset_ms += *measured.input_dist_ms;
      }
      first_ms =
          rank == 0 ? measured.start_offset_ms : std::min(first_ms, measured.start_offset_ms);
    }
    for (MeasuredRank& measured : report_.ranks) measured.start_offset_ms -= first_ms;
    return true;
  }

  // Every rank's `stage` becomes the sum over the collectives of the direction. Ranks enter the
  // forward stage with their start offsets; its first collective brings them together.
  Status MeasureStage(CommGroup& group, CommDirection direction,
                      std::optional<double> MeasuredRank::*stage) {
    for (MeasuredRank& measured : report_.ranks) measured.*stage = 0;
    bool together = direction == CommDirection::kBackward;
    for (CommSample& sample :
         CollectivesOf(ranks_, direction, request_.global_batch_size, quantized_comms_)) {
      display_.Note(fmt::format("communication between {} ranks, {}: {}", ranks_.size(),
                                ToText(direction), ToText(sample.collective)));
      if (!std::exchange(together, true) && options_.cadence == Cadence::kBarrier) {
        for (const MeasuredRank& rank : report_.ranks)
          sample.start_offsets_ms.push_back(rank.start_offset_ms);
      }
      NS_RETURN_IF_ERROR(MeasureCollective(group, sample, stage));
    }
    return absl::OkStatus();
  }

  Status MeasureCollective(CommGroup& group, CommSample sample,
                           std::optional<double> MeasuredRank::*stage) {
    sample.cadence = options_.cadence;
    NS_ASSIGN_OR_RETURN(const auto measurements,
                        group.Profile(options_.settings, sample, kSampleDeadline));
    report_.comm.push_back({sample, measurements});
    if (const std::string different = DifferentNetworks(measurements);
        !different.empty() && std::ranges::find(report_.notes, different) == report_.notes.end()) {
      report_.notes.push_back(different);
    }
    for (const CommMeasurement& measurement : measurements) {
      MeasuredRank& measured = report_.ranks[static_cast<std::size_t>(measurement.rank)];
      if (measurement.outcome == Outcome::kOk) {
        AddTo(measured.*stage, measurement.series.median_ms);
      } else {
        (measured.*stage).reset();
        SetProblem(measurement.outcome, measurement.detail, measured);
      }
    }
    return absl::OkStatus();
  }

  const PlanRequest& request_;
  std::vector<RankShards> ranks_;
  QuantizedComms quantized_comms_;  // that every worker can cast to
  bool distributes_ids_ = true;     // every worker can
  const ValidationOptions& options_;
  ProgressDisplay& display_;
  std::vector<std::unique_ptr<WorkerClient>> workers_;
  std::vector<RankPlacement> placement_;  // of the first ranks, one device each
  bool own_devices_ = false;              // every rank has a device of its own
  ValidationReport report_;
  // Measurements by rank. Device threads write those of their ranks.
  std::vector<std::vector<MeasuredComputeSample>> compute_;
};

}  // namespace

std::optional<double> MeasuredRank::compute_ms() const {
  if (!forward_compute_ms || !backward_compute_ms) return std::nullopt;
  return *forward_compute_ms + *backward_compute_ms;
}

std::optional<double> ValidationReport::total_ms(std::size_t rank) const {
  const MeasuredRank& of = ranks[rank];
  if (!of.compute_ms() || !of.backward_comm_ms || !of.forward_comm_ms) return std::nullopt;
  const double ms = *of.compute_ms() + *of.backward_comm_ms + *of.forward_comm_ms;
  if (input_dist != InputDistUse::kExposed) return ms;
  if (!of.input_dist_ms) return std::nullopt;
  return ms + *of.input_dist_ms;
}

std::optional<double> ValidationReport::embedding_cost_ms() const {
  double cost_ms = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::optional<double> rank_ms = total_ms(rank);
    if (!rank_ms) return std::nullopt;
    cost_ms = std::max(cost_ms, *rank_ms);
  }
  return cost_ms;
}

MeasuredWith ValidationReport::measured_with() const {
  std::set<std::string> devices;
  std::set<std::string> backends;
  std::set<std::string> collective_backends;
  for (const MeasuredComputeSample& of_rank : compute) {
    devices.insert(of_rank.measurement.environment.device);
    backends.insert(of_rank.measurement.environment.backend);
  }
  for (const MeasuredCommSample& collective : comm) {
    for (const CommMeasurement& rank : collective.measurements) {
      collective_backends.insert(CollectiveBackendOf(rank.environment));
    }
  }
  return {fmt::format("{}", fmt::join(devices, "+")), fmt::format("{}", fmt::join(backends, "+")),
          fmt::format("{}", fmt::join(collective_backends, "+"))};
}

StatusOr<ValidationReport> Validate(const PlanRequest& request,
                                    const std::vector<RankShards>& ranks,
                                    const ValidationOptions& options, const StopSignal& stop,
                                    ProgressDisplay& display) {
  return Validation(request, ranks, options, display).Run(stop);
}

StatusOr<std::int64_t> RecordValidation(const ValidationReport& report,
                                        const std::string& config_text, ProfileStore& store) {
  const SweepInfo info{"validation", "validation-" + report.run_id, config_text};
  NS_RETURN_IF_ERROR(store.RecordMeasured(info, report.compute, report.comm));
  return static_cast<std::int64_t>(report.compute.size() + report.comm.size());
}

}  // namespace neuroshard
