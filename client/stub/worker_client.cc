#include "client/stub/worker_client.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <list>
#include <utility>

#include "client/stub/call_policy.h"
#include "client/stub/channel.h"
#include "client/stub/compute_stream.h"
#include "common/base/mutex.h"
#include "common/codec/measurement_codec.h"
#include "common/rpc/deadline.h"
#include "neuroshard/v1/worker.grpc.pb.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;

// Questions that a healthy worker answers at once, however busy its devices are.
constexpr milliseconds kQuickDeadline{5'000};
// The group's own timeout is the one that should speak; this is for a worker that does not keep it.
constexpr milliseconds kConnectDeadline{60'000};

WorkerDescription Describe(const v1::WorkerInfo& info) {
  WorkerDescription description{
      info.version(), info.git_commit(), info.hostname(), {}, info.now_unix_ms()};
  for (const v1::WorkerDevice& device : info.devices()) {
    description.devices.push_back({device.index(), device.name(), device.backend(),
                                   device.collective_backend(), device.memory_bytes(),
                                   device.running_job()});
    if (device.compute_kernels().empty()) continue;
    std::vector<ComputeKernel>& kernels = description.devices.back().compute_kernels;
    kernels.clear();
    for (const std::string& word : device.compute_kernels()) {
      if (const auto kernel = FromText<ComputeKernel>(word)) kernels.push_back(*kernel);
    }
  }
  return description;
}

}  // namespace

// Unary calls in progress, which another thread can end. Thread-safe.
class CancellableCalls {
 public:
  // Runs `call` with a context that CancelAll ends.
  template <typename Call>
  Status Run(std::chrono::milliseconds deadline, const Call& call) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(deadline));
    AddTrace(context);
    {
      const MutexLock lock(mutex_);
      if (cancelled_) return absl::CancelledError("cancelled");
      contexts_.push_back(&context);
    }
    Status status = call(context);
    const MutexLock lock(mutex_);
    contexts_.remove(&context);
    return status;
  }

  void CancelAll() {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
  }

 private:
  Mutex mutex_;
  std::list<grpc::ClientContext*> contexts_ NS_GUARDED_BY(mutex_);
  bool cancelled_ NS_GUARDED_BY(mutex_) = false;
};

class WorkerClient::Impl {
 public:
  Impl(std::string address, CallPolicy policy)
      : address_(std::move(address)),
        policy_(std::move(policy)),
        stub_(v1::WorkerService::NewStub(OpenChannel(address_, policy_.tls))) {}

  const std::string& address() const { return address_; }
  const CallPolicy& policy() const { return policy_; }
  v1::WorkerService::Stub& stub() const { return *stub_; }
  CancellableCalls& calls() const { return calls_; }
  // One call of `method`.
  template <typename Request, typename Response>
  Status Call(grpc::ClientContext& context,
              grpc::Status (v1::WorkerService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                              Response*),
              const Request& request, Response& response) const {
    const grpc::Status status = (*stub_.*method)(&context, request, &response);
    return CallStatus(status, context, "worker", address_, policy_.tls);
  }
  // A call that Cancel ends.
  template <typename Request, typename Response>
  Status Call(milliseconds deadline,
              grpc::Status (v1::WorkerService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                              Response*),
              const Request& request, Response& response) const {
    return calls_.Run(deadline, [&](grpc::ClientContext& context) {
      return Call(context, method, request, response);
    });
  }

 private:
  std::string address_;
  CallPolicy policy_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  mutable CancellableCalls calls_;
};

WorkerClient::WorkerClient(std::string address, CallPolicy policy)
    : impl_(std::make_unique<Impl>(std::move(address), std::move(policy))) {}
WorkerClient::~WorkerClient() = default;

const std::string& WorkerClient::address() const { return impl_->address(); }

StatusOr<WorkerDescription> WorkerClient::GetWorkerInfo() const {
  v1::WorkerInfo info;
  const milliseconds deadline = std::min(kQuickDeadline, impl_->policy().deadline);
  NS_RETURN_IF_ERROR(Retry(impl_->policy(), [&] {
    return impl_->Call(deadline, &v1::WorkerService::Stub::GetWorkerInfo,
                       v1::GetWorkerInfoRequest(), info);
  }));
  return Describe(info);
}

std::unique_ptr<ComputeStream> WorkerClient::OpenComputeStream(
    int device, const MeasurementSettings& settings) const {
  return MakeComputeStream(impl_->stub(), impl_->address(), device, settings);
}

StatusOr<OpenedCommGroup> WorkerClient::OpenCommGroup(const CommGroupSpec& spec) const {
  v1::OpenCommGroupRequest request;
  request.set_group_id(spec.group_id);
  request.set_world_size(spec.world_size);
  request.set_timeout_ms(spec.timeout.count());
  request.set_idle_timeout_ms(spec.idle_timeout.count());
  for (const auto& [rank, device] : spec.device_of_rank) {
    v1::LocalRank* local = request.add_local_ranks();
    local->set_rank(rank);
    local->set_device(device);
  }
  v1::OpenCommGroupResponse response;
  NS_RETURN_IF_ERROR(
      impl_->Call(kConnectDeadline, &v1::WorkerService::Stub::OpenCommGroup, request, response));
  OpenedCommGroup group{.group_id = spec.group_id, .token = response.token(), .addresses = {}};
  for (const v1::RankAddress& address : response.addresses())
    group.addresses[address.rank()] = address.address();
  for (const auto& [rank, device] : spec.device_of_rank) {
    if (group.addresses.count(rank) == 0)
      return Internal("worker at {}: no address for rank {}", impl_->address(), rank);
  }
  return group;
}

Status WorkerClient::ConnectCommGroup(const OpenedCommGroup& group,
                                      const std::vector<std::string>& addresses) const {
  v1::ConnectCommGroupRequest request;
  request.set_group_id(group.group_id);
  request.set_token(group.token);
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    v1::RankAddress* address = request.add_addresses();
    address->set_rank(static_cast<int>(rank));
    address->set_address(addresses[rank]);
  }
  v1::ConnectCommGroupResponse response;
  return impl_->Call(kConnectDeadline, &v1::WorkerService::Stub::ConnectCommGroup, request,
                     response);
}

StatusOr<std::vector<CommMeasurement>> WorkerClient::ProfileComm(
    const OpenedCommGroup& group, const MeasurementSettings& settings, const CommSample& sample,
    milliseconds deadline) const {
  v1::ProfileCommRequest request;
  request.set_group_id(group.group_id);
  request.set_token(group.token);
  *request.mutable_settings() = EncodeMeasurementSettings(settings);
  *request.mutable_sample() = EncodeCommSample(sample);
  v1::ProfileCommResponse response;
  NS_RETURN_IF_ERROR(
      impl_->Call(deadline, &v1::WorkerService::Stub::ProfileComm, request, response));
  std::vector<CommMeasurement> measurements;
  for (const v1::CommMeasurement& message : response.measurements()) {
    NS_ASSIGN_OR_RETURN(CommMeasurement measurement, DecodeCommMeasurement(message));
    if (measurement.sample_id != sample.sample_id) {
      return Internal("worker at {}: answered sample {} with a record of sample {}",
                      impl_->address(), sample.sample_id, measurement.sample_id);
    }
    measurements.push_back(std::move(measurement));
  }
  return measurements;
}

Status WorkerClient::CloseCommGroup(const OpenedCommGroup& group) const {
  v1::CloseCommGroupRequest request;
  request.set_group_id(group.group_id);
  request.set_token(group.token);
  CallPolicy policy = impl_->policy();
  policy.max_attempts = std::min(policy.max_attempts, 2);  // a group closes by itself as well
  return Retry(policy, [&] {
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(kQuickDeadline));
    AddTrace(context);
    v1::CloseCommGroupResponse response;
    return impl_->Call(context, &v1::WorkerService::Stub::CloseCommGroup, request, response);
  });
}

void WorkerClient::Cancel() const { impl_->calls().CancelAll(); }

}  // namespace neuroshard
