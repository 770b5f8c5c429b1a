#include "worker/service/worker_service.h"

#include <fmt/format.h>
#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/failure_reason.h"
#include "common/base/mutex.h"
#include "common/codec/measurement_codec.h"
#include "common/codec/message_fields.h"
#include "common/codec/request_faults.h"
#include "common/domain/backend_names.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/deadline.h"
#include "worker/measure/exchange_counts.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;

// Ends a streaming call whose client neither sends nor reads, so that it does not hold a device for
// ever.
class StreamWatchdog {
 public:
  // `context` must outlive the watchdog.
  StreamWatchdog(grpc::ServerContextBase& context, milliseconds timeout)
      : context_(context), timeout_(timeout) {}

  // What `step` returns, which waits for the client to do something. If that takes longer than the
  // timeout, the call is cancelled, which makes the blocked Read or Write return false.
  template <typename Step>
  bool Watch(const Step& step) {
    const auto wait = std::make_shared<Wait>();
    grpc::Alarm alarm;
    alarm.Set(DeadlineIn(timeout_), [this, wait](bool reached) {
      const MutexLock lock(wait->mutex);
      if (!reached || wait->over) return;
      expired_ = true;
      context_.TryCancel();
    });
    const bool done = step();
    const MutexLock lock(wait->mutex);
    wait->over = true;
    return done;
  }

  bool expired() const { return expired_; }

 private:
  // gRPC may still call when the wait is over, and then all else may be gone.
  struct Wait {
    Mutex mutex;
    bool over NS_GUARDED_BY(mutex) = false;
  };

  grpc::ServerContextBase& context_;
  const milliseconds timeout_;
  bool expired_ = false;  // written with the mutex of a wait held, and read after it
};

// The status with its field paths below `prefix`.
Status Below(const std::string& prefix, const Status& status) {
  RequestFaults faults;
  faults.Add(status, prefix);
  const Status below = faults.ToStatus();
  return below.ok() ? status : below;
}

milliseconds OrDefault(std::int64_t value_ms, milliseconds fallback) {
  return value_ms == 0 ? fallback : milliseconds(value_ms);
}

struct ComputeHeader {
  int device = 0;
  MeasurementSettings settings;
};

StatusOr<ComputeHeader> DecodeHeader(const v1::ProfileComputeRequest& request, int num_devices) {
  if (!request.has_header()) {
    return InvalidArgument("header: the first message of the stream must carry it");
  }
  RequestFaults faults;
  const int device = request.header().device();
  if (device < 0 || device >= num_devices) {
    faults.violations.Add("header.device", "must be in [0, {}), got {}", num_devices, device);
  }
  StatusOr<MeasurementSettings> settings = DecodeMeasurementSettings(request.header().settings());
  faults.Add(settings.status(), "header.settings.");
  NS_RETURN_IF_ERROR(faults.ToStatus());
  NS_RETURN_IF_ERROR(settings.status());
  return ComputeHeader{.device = device, .settings = *settings};
}

StatusOr<ComputeSample> DecodeSample(const v1::ProfileComputeRequest& request) {
  if (!request.has_sample()) {
    return InvalidArgument("sample: every message after the first must carry one");
  }
  StatusOr<ComputeSample> sample = DecodeComputeSample(request.sample());
  if (!sample.ok()) return Below("sample.", sample.status());
  return sample;
}

CommGroupSpec DecodeGroupSpec(const v1::OpenCommGroupRequest& request) {
  CommGroupSpec spec;
  spec.group_id = request.group_id();
  spec.world_size = request.world_size();
  for (const v1::LocalRank& local : request.local_ranks()) {
    spec.local_ranks.push_back({.rank = local.rank(), .device = local.device()});
  }
  spec.timeout = OrDefault(request.timeout_ms(), spec.timeout);
  spec.idle_timeout = OrDefault(request.idle_timeout_ms(), spec.idle_timeout);
  return spec;
}

template <typename Request>
CommGroupKey GroupKey(const Request& request) {
  return {.group_id = request.group_id(), .token = request.token()};
}

// The audit of one lease, from its begin to its end.
class Lease {
 public:
  Lease(Logger logger, int device) : logger_(std::move(logger)), device_(device) {
    logger_.Audit("device_leased", {{"device", device_}});
  }
  ~Lease() { logger_.Audit("device_returned", {{"device", device_}}); }
  Lease(Lease&&) = delete;

 private:
  const Logger logger_;
  const int device_;
};

std::string DevicesOf(const v1::OpenCommGroupRequest& request) {
  std::string devices;
  for (const v1::LocalRank& local : request.local_ranks()) {
    devices += fmt::format("{}{}", devices.empty() ? "" : ",", local.device());
  }
  return devices;
}

void EncodeDevice(const DeviceDescription& device, v1::WorkerDevice* message) {
  message->set_index(device.index);
  message->set_running_job(device.running_job);
  PutFields(device.properties, *message);
  PutFields(device.properties.embedding, *message);
}

// Ids are put in order, and values cast, by kernels of this host, around exchanges that it sees.
Status CheckMeasures(const DeviceInventory& inventory, const CommGroupSpec& spec,
                     const CommSample& sample) {
  const bool casts = sample.casts();
  if (!sample.input_dist && !casts) return absl::OkStatus();
  Violations violations;
  for (const LocalRank& local : spec.local_ranks) {
    const std::string& backend = inventory.properties(local.device).collective_backend;
    if (backend == kNeuroshardTcp) continue;
    violations.Add(
        casts ? "wire_dtype" : "collective", "{} is measured by {} alone, and rank {} has {}",
        casts ? ToText(sample.wire_dtype) : kInputDistWord, kNeuroshardTcp, local.rank, backend);
  }
  return violations.ToStatus();
}

}  // namespace

v1::WorkerInfo WorkerServiceImpl::Info() const {
  v1::WorkerInfo info;
  const MeasurementEnvironment& host = parts_.host;
  info.set_version(host.worker_version);
  info.set_git_commit(host.git_commit);
  info.set_hostname(host.hostname);
  info.set_now_unix_ms(UnixMillisecondsNow());
  for (const DeviceDescription& device : parts_.inventory.Describe()) {
    EncodeDevice(device, info.add_devices());
    info.mutable_environment()->insert(device.properties.details.begin(),
                                       device.properties.details.end());
  }
  info.mutable_environment()->insert(host.properties.begin(), host.properties.end());
  return info;
}

grpc::ServerUnaryReactor* WorkerServiceImpl::GetWorkerInfo(grpc::CallbackServerContext* context,
                                                           const v1::GetWorkerInfoRequest*,
                                                           v1::WorkerInfo* response) {
  const auto handler = [&](RpcGate::Call&) {
    *response = Info();
    return absl::OkStatus();
  };
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(gate_.Serve(*context, "GetWorkerInfo", handler, RpcGate::Kind::kCheap));
  return reactor;
}

grpc::Status WorkerServiceImpl::ProfileCompute(grpc::ServerContext* context,
                                               ComputeStream* stream) {
  return gate_.Serve(*context, "ProfileCompute", [&](RpcGate::Call& call) {
    return RunComputeStream(call, *context, *stream);
  });
}

Status WorkerServiceImpl::RunComputeStream(RpcGate::Call& call, grpc::ServerContext& context,
                                           ComputeStream& stream) {
  StreamWatchdog watchdog(context, options_.stream_idle_timeout);
  v1::ProfileComputeRequest request;
  const auto read = [&] { return watchdog.Watch([&] { return stream.Read(&request); }); };
  const auto write = [&](const ComputeMeasurement& record) {
    v1::ProfileComputeResponse response;
    *response.mutable_measurement() = EncodeComputeMeasurement(record);
    return watchdog.Watch([&] { return stream.Write(response); });
  };

  if (!read()) return InvalidArgument("header: the stream ended before it");
  NS_ASSIGN_OR_RETURN(const ComputeHeader header,
                      DecodeHeader(request, static_cast<int>(parts_.inventory.Describe().size())));
  NS_ASSIGN_OR_RETURN(
      const DeviceLease device,
      parts_.inventory.Lease(header.device, fmt::format("ProfileCompute of {}", context.peer())));
  const Lease lease(call.Log(logger_), header.device);
  // Not the gate's draining signal: a drain lets the running measurement finish.
  const NeverStop never;
  const CallStop stop(context, never, clock_);
  while (read()) {
    NS_ASSIGN_OR_RETURN(const ComputeSample sample, DecodeSample(request));
    const TimePoint begin = clock_.Now();
    const StatusOr<ComputeMeasurement> record =
        device->MeasureCompute(sample, header.settings, stop);
    Record(MeasurementKind::kCompute, begin, record.status(),
           record.ok() ? record->outcome : Outcome::kOk);
    if (!record.ok()) return Below("sample.", record.status());
    if (!write(*record)) break;
    if (gate_.draining().ShouldStop()) {
      return WithReason(Unavailable("the worker is shutting down"), FailureReason::kDraining);
    }
  }
  if (watchdog.expired()) {
    return Cancelled("the client neither sent nor read anything for {} ms",
                     options_.stream_idle_timeout.count());
  }
  return context.IsCancelled() ? absl::CancelledError("the client went away") : absl::OkStatus();
}

grpc::Status WorkerServiceImpl::OpenCommGroup(grpc::ServerContext* context,
                                              const v1::OpenCommGroupRequest* request,
                                              v1::OpenCommGroupResponse* response) {
  return gate_.Serve(*context, "OpenCommGroup", [&](RpcGate::Call& call) -> Status {
    NS_ASSIGN_OR_RETURN(const std::shared_ptr<const CommGroup> group,
                        parts_.groups.Open(DecodeGroupSpec(*request)));
    call.Log(logger_).Audit("comm_group_opened", {{"group", request->group_id()},
                                                  {"world_size", request->world_size()},
                                                  {"devices", DevicesOf(*request)}});
    response->set_token(group->token());
    for (const RankAddress& one : group->addresses()) PutFields(one, *response->add_addresses());
    return absl::OkStatus();
  });
}

grpc::Status WorkerServiceImpl::ConnectCommGroup(grpc::ServerContext* context,
                                                 const v1::ConnectCommGroupRequest* request,
                                                 v1::ConnectCommGroupResponse*) {
  return gate_.Serve(*context, "ConnectCommGroup", [&](RpcGate::Call&) {
    std::vector<RankAddress> addresses;
    for (const v1::RankAddress& message : request->addresses()) {
      addresses.push_back({.rank = message.rank(), .address = message.address()});
    }
    const NeverStop never;
    const CallStop stop(*context, never, clock_);
    return parts_.groups.Connect(GroupKey(*request), addresses, stop);
  });
}

grpc::Status WorkerServiceImpl::ProfileComm(grpc::ServerContext* context,
                                            const v1::ProfileCommRequest* request,
                                            v1::ProfileCommResponse* response) {
  return gate_.Serve(*context, "ProfileComm", [&](RpcGate::Call&) -> Status {
    RequestFaults faults;
    StatusOr<MeasurementSettings> settings = DecodeMeasurementSettings(request->settings());
    faults.Add(settings.status(), "settings.");
    StatusOr<CommSample> sample = DecodeCommSample(request->sample());
    faults.Add(sample.status(), "sample.");
    NS_RETURN_IF_ERROR(faults.ToStatus());
    NS_RETURN_IF_ERROR(settings.status());
    NS_RETURN_IF_ERROR(sample.status());

    const NeverStop never;
    const CallStop stop(*context, never, clock_);
    StatusOr<std::vector<CommMeasurement>> records =
        MeasureComm(GroupKey(*request), *sample, *settings, stop);
    if (!records.ok()) return Below("sample.", records.status());
    for (const CommMeasurement& record : *records) {
      *response->add_measurements() = EncodeCommMeasurement(record);
    }
    return absl::OkStatus();
  });
}

grpc::Status WorkerServiceImpl::CloseCommGroup(grpc::ServerContext* context,
                                               const v1::CloseCommGroupRequest* request,
                                               v1::CloseCommGroupResponse*) {
  return gate_.Serve(*context, "CloseCommGroup", [&](RpcGate::Call& call) -> Status {
    NS_RETURN_IF_ERROR(parts_.groups.Close(GroupKey(*request)));
    call.Log(logger_).Audit("comm_group_closed", {{"group", request->group_id()}});
    return absl::OkStatus();
  });
}

StatusOr<std::vector<CommMeasurement>> WorkerServiceImpl::MeasureComm(
    const CommGroupKey& group, const CommSample& sample, const MeasurementSettings& settings,
    const StopSignal& stop) {
  NS_ASSIGN_OR_RETURN(const CommGroupSpec spec, parts_.groups.Spec(group));
  NS_RETURN_IF_ERROR(CheckCommSample(sample, spec.world_size, spec.timeout));
  NS_RETURN_IF_ERROR(CheckMeasures(parts_.inventory, spec, sample));

  const TimePoint begin = clock_.Now();
  StatusOr<std::vector<CommMeasurement>> records =
      parts_.groups.Measure(group, sample, settings, stop);
  Record(MeasurementKind::kComm, begin, records.status(),
         records.ok() ? records->front().outcome : Outcome::kOk);
  return records;
}

void WorkerServiceImpl::Record(MeasurementKind kind, TimePoint begin, const Status& status,
                               Outcome outcome) {
  if (parts_.metrics == nullptr) return;
  std::string label(ToText(outcome));
  if (!status.ok()) label = absl::IsCancelled(status) ? "cancelled" : "error";
  parts_.metrics->SampleEnded(kind, label, MillisecondsBetween(begin, clock_.Now()) / 1e3);
}

}  // namespace neuroshard
