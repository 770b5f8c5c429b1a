#include "client/stub/worker_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <utility>

#include "client/stub/channel.h"
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

// The deadline of giving a device back: a worker stops at the next iteration.
constexpr milliseconds kFinishDeadline{10'000};

// The asynchronous interface on a completion queue of its own, because a blocking read has no
// deadline. One operation is in flight at any time, so a tag carries no information.
class AsyncComputeStream final : public ComputeStream {
 public:
  AsyncComputeStream(v1::WorkerService::Stub& stub, std::string address, int device,
                     const MeasurementSettings& settings)
      : stub_(stub), address_(std::move(address)) {
    header_.mutable_header()->set_device(device);
    *header_.mutable_header()->mutable_settings() = EncodeMeasurementSettings(settings);
  }

  ~AsyncComputeStream() override {
    if (started_ && !over_) {
      context_.TryCancel();
      Status ignored = End(kFinishDeadline);
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  StatusOr<ComputeMeasurement> Measure(const ComputeSample& sample,
                                       milliseconds deadline) override {
    if (over_) return FailedPrecondition("worker at {}: the stream is over", address_);
    if (cancelled_.load()) return absl::CancelledError("cancelled");
    const gpr_timespec until = DeadlineIn(deadline);
    if (!started_) NS_RETURN_IF_ERROR(Start(until));
    v1::ProfileComputeRequest request;
    *request.mutable_sample() = EncodeComputeSample(sample);
    stream_->Write(request, nullptr);
    NS_RETURN_IF_ERROR(Await(until));
    v1::ProfileComputeResponse response;
    stream_->Read(&response, nullptr);
    NS_RETURN_IF_ERROR(Await(until));
    NS_ASSIGN_OR_RETURN(ComputeMeasurement measurement,
                        DecodeComputeMeasurement(response.measurement()));
    if (measurement.sample_id != sample.sample_id) {
      return Internal("worker at {}: answered sample {} with a record of sample {}", address_,
                      sample.sample_id, measurement.sample_id);
    }
    return measurement;
  }

  Status Finish() override {
    if (!started_ || over_) return absl::OkStatus();
    const gpr_timespec until = DeadlineIn(kFinishDeadline);
    stream_->WritesDone(nullptr);
    NS_RETURN_IF_ERROR(Await(until));
    return End(kFinishDeadline);
  }

  void Cancel() override {
    cancelled_.store(true);
    context_.TryCancel();
  }

 private:
  Status Start(gpr_timespec until) {
    started_ = true;
    AddTrace(context_);
    stream_ = stub_.PrepareAsyncProfileCompute(&context_, &queue_);
    stream_->StartCall(nullptr);
    NS_RETURN_IF_ERROR(Await(until));
    stream_->Write(header_, nullptr);
    return Await(until);
  }

  // Waits for the operation in flight. When it fails or is too late the call is ended and its
  // status returned, which is never OK.
  Status Await(gpr_timespec until) {
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, until) == grpc::CompletionQueue::TIMEOUT) {
      context_.TryCancel();
      queue_.Next(&tag, &ok);  // the operation itself, cut short by the cancel
      Status ignored = End(kFinishDeadline);
      return DeadlineExceeded("worker at {}: no answer in time", address_);
    }
    if (ok) return absl::OkStatus();
    const Status status = End(kFinishDeadline);
    if (!status.ok()) return status;
    return Internal("worker at {}: ended the stream without an answer", address_);
  }

  Status End(milliseconds deadline) {
    over_ = true;
    grpc::Status status;
    stream_->Finish(&status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, DeadlineIn(deadline)) != grpc::CompletionQueue::GOT_EVENT) {
      context_.TryCancel();
      queue_.Next(&tag, &ok);
    }
    return CallStatus(status, context_, "worker", address_);
  }

  v1::WorkerService::Stub& stub_;
  std::string address_;
  v1::ProfileComputeRequest header_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<
      grpc::ClientAsyncReaderWriter<v1::ProfileComputeRequest, v1::ProfileComputeResponse>>
      stream_;
  std::atomic<bool> cancelled_{false};
  bool started_ = false;
  bool over_ = false;
};

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

bool Measures(const v1::WorkerDevice& device, ComputeKernel kernel) {
  const auto& kernels = device.compute_kernels();
  return kernels.empty() ? kernel == ComputeKernel::kFused
                         : std::ranges::find(kernels, ToText(kernel)) != kernels.end();
}

WorkerClient::WorkerClient(std::string address, CallPolicy policy)
    : impl_(std::make_unique<Impl>(std::move(address), std::move(policy))) {}
WorkerClient::~WorkerClient() = default;

const std::string& WorkerClient::address() const { return impl_->address(); }

StatusOr<v1::WorkerInfo> WorkerClient::GetWorkerInfo() const {
  v1::WorkerInfo info;
  const milliseconds deadline = std::min(kQuickDeadline, impl_->policy().deadline);
  NS_RETURN_IF_ERROR(Retry(impl_->policy(), [&] {
    return impl_->Call(deadline, &v1::WorkerService::Stub::GetWorkerInfo,
                       v1::GetWorkerInfoRequest(), info);
  }));
  return info;
}

std::unique_ptr<ComputeStream> WorkerClient::OpenComputeStream(
    int device, const MeasurementSettings& settings) const {
  return std::make_unique<AsyncComputeStream>(impl_->stub(), impl_->address(), device, settings);
}

StatusOr<OpenedCommGroup> WorkerClient::OpenCommGroup(
    const v1::OpenCommGroupRequest& request) const {
  v1::OpenCommGroupResponse response;
  NS_RETURN_IF_ERROR(
      impl_->Call(kConnectDeadline, &v1::WorkerService::Stub::OpenCommGroup, request, response));
  OpenedCommGroup group{.group_id = request.group_id(), .token = response.token(), .addresses = {}};
  for (const v1::RankAddress& address : response.addresses())
    group.addresses[address.rank()] = address.address();
  for (const v1::LocalRank& local : request.local_ranks()) {
    if (!group.addresses.contains(local.rank()))
      return Internal("worker at {}: no address for rank {}", impl_->address(), local.rank());
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
