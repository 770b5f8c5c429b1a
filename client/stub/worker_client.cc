#include "client/stub/worker_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <list>
#include <utility>

#include "client/stub/channel.h"
#include "common/base/mutex.h"
#include "common/codec/measurement_codec.h"
#include "common/rpc/deadline.h"
#include "neuroshard/v1/worker.grpc.pb.h"

namespace neuroshard {

// Calls in progress, which another thread can end. Thread-safe.
class CallsInProgress {
 public:
  // False: all were ended before. `context` stays until it is removed.
  bool Add(grpc::ClientContext* context) {
    const MutexLock lock(mutex_);
    if (!cancelled_) contexts_.push_back(context);
    return !cancelled_;
  }

  void Remove(grpc::ClientContext* context) {
    const MutexLock lock(mutex_);
    contexts_.remove(context);
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

namespace {

using std::chrono::milliseconds;

// Questions that a healthy worker answers at once, however busy its devices are.
constexpr milliseconds kQuickDeadline{5'000};
// The group's own timeout is the one that should speak; this is for a worker that does not keep it.
constexpr milliseconds kConnectDeadline{60'000};

// The deadline of giving a device back: a worker stops at the next iteration.
constexpr milliseconds kFinishDeadline{10'000};

Status CheckSampleId(const std::string& answered, const std::string& asked,
                     const std::string& address) {
  if (answered == asked) return absl::OkStatus();
  return Internal("worker at {}: answered sample {} with a record of sample {}", address, asked,
                  answered);
}

// What the calls of an opened group have to show.
template <typename Request>
Request RequestOf(const OpenedCommGroup& group) {
  Request request;
  request.set_group_id(group.group_id);
  request.set_token(group.token);
  return request;
}

// The asynchronous interface on a completion queue of its own, because a blocking read has no
// deadline. One operation is in flight at any time, so a tag carries no information.
class AsyncComputeStream final : public ComputeStream {
 public:
  AsyncComputeStream(v1::WorkerService::Stub& stub, CallsInProgress& calls, std::string address,
                     int device, const MeasurementSettings& settings)
      : stub_(stub), calls_(calls), address_(std::move(address)) {
    header_.mutable_header()->set_device(device);
    *header_.mutable_header()->mutable_settings() = EncodeMeasurementSettings(settings);
  }

  ~AsyncComputeStream() override {
    if (started_ && !over_) {
      context_.TryCancel();
      Status ignored = End(kFinishDeadline);
    }
    calls_.Remove(&context_);
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  StatusOr<ComputeMeasurement> Measure(const ComputeSample& sample,
                                       milliseconds deadline) override {
    if (over_) return FailedPrecondition("worker at {}: the stream is over", address_);
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
    NS_RETURN_IF_ERROR(CheckSampleId(measurement.sample_id, sample.sample_id, address_));
    return measurement;
  }

  Status Finish() override {
    if (!started_ || over_) return absl::OkStatus();
    const gpr_timespec until = DeadlineIn(kFinishDeadline);
    stream_->WritesDone(nullptr);
    NS_RETURN_IF_ERROR(Await(until));
    return End(kFinishDeadline);
  }

 private:
  Status Start(gpr_timespec until) {
    over_ = !calls_.Add(&context_);
    if (over_) return absl::CancelledError("cancelled");
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
  CallsInProgress& calls_;
  std::string address_;
  v1::ProfileComputeRequest header_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<
      grpc::ClientAsyncReaderWriter<v1::ProfileComputeRequest, v1::ProfileComputeResponse>>
      stream_;
  bool started_ = false;
  bool over_ = false;
};

}  // namespace

struct WorkerClient::Impl {
  const std::string address;
  const CallPolicy policy;
  const std::unique_ptr<v1::WorkerService::Stub> stub =
      v1::WorkerService::NewStub(OpenChannel(address, policy.tls));
  CallsInProgress calls = {};

  // One call of `method`, which Cancel ends, unless it goes on regardless.
  template <typename Request, typename Response>
  StatusOr<Response> Call(milliseconds deadline,
                          grpc::Status (v1::WorkerService::Stub::*method)(grpc::ClientContext*,
                                                                          const Request&,
                                                                          Response*),
                          const Request& request, bool regardless = false) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(deadline));
    AddTrace(context);
    if (!regardless && !calls.Add(&context)) return absl::CancelledError("cancelled");
    Response response;
    const grpc::Status status = (*stub.*method)(&context, request, &response);
    calls.Remove(&context);
    NS_RETURN_IF_ERROR(CallStatus(status, context, "worker", address, policy.tls));
    return response;
  }
};

bool Measures(const v1::WorkerDevice& device, ComputeKernel kernel) {
  const auto& kernels = device.compute_kernels();
  return kernels.empty() ? kernel == ComputeKernel::kFused
                         : std::ranges::find(kernels, ToText(kernel)) != kernels.end();
}

WorkerClient::WorkerClient(std::string address, CallPolicy policy)
    : impl_(new Impl{std::move(address), std::move(policy)}) {}
WorkerClient::~WorkerClient() = default;

const std::string& WorkerClient::address() const { return impl_->address; }

StatusOr<v1::WorkerInfo> WorkerClient::GetWorkerInfo() const {
  StatusOr<v1::WorkerInfo> info;
  const milliseconds deadline = std::min(kQuickDeadline, impl_->policy.deadline);
  NS_RETURN_IF_ERROR(Retry(impl_->policy, [&] {
    info =
        impl_->Call(deadline, &v1::WorkerService::Stub::GetWorkerInfo, v1::GetWorkerInfoRequest());
    return info.status();
  }));
  return info;
}

std::unique_ptr<ComputeStream> WorkerClient::OpenComputeStream(
    int device, const MeasurementSettings& settings) const {
  return std::make_unique<AsyncComputeStream>(*impl_->stub, impl_->calls, impl_->address, device,
                                              settings);
}

StatusOr<OpenedCommGroup> WorkerClient::OpenCommGroup(
    const v1::OpenCommGroupRequest& request) const {
  NS_ASSIGN_OR_RETURN(
      const v1::OpenCommGroupResponse response,
      impl_->Call(kConnectDeadline, &v1::WorkerService::Stub::OpenCommGroup, request));
  OpenedCommGroup group{.group_id = request.group_id(), .token = response.token(), .addresses = {}};
  for (const v1::RankAddress& address : response.addresses())
    group.addresses[address.rank()] = address.address();
  for (const v1::LocalRank& local : request.local_ranks()) {
    if (!group.addresses.contains(local.rank()))
      return Internal("worker at {}: no address for rank {}", impl_->address, local.rank());
  }
  return group;
}

Status WorkerClient::ConnectCommGroup(const OpenedCommGroup& group,
                                      const std::vector<std::string>& addresses) const {
  auto request = RequestOf<v1::ConnectCommGroupRequest>(group);
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    v1::RankAddress* address = request.add_addresses();
    address->set_rank(static_cast<int>(rank));
    address->set_address(addresses[rank]);
  }
  return impl_->Call(kConnectDeadline, &v1::WorkerService::Stub::ConnectCommGroup, request)
      .status();
}

StatusOr<std::vector<CommMeasurement>> WorkerClient::ProfileComm(
    const OpenedCommGroup& group, const MeasurementSettings& settings, const CommSample& sample,
    milliseconds deadline) const {
  auto request = RequestOf<v1::ProfileCommRequest>(group);
  *request.mutable_settings() = EncodeMeasurementSettings(settings);
  *request.mutable_sample() = EncodeCommSample(sample);
  NS_ASSIGN_OR_RETURN(const v1::ProfileCommResponse response,
                      impl_->Call(deadline, &v1::WorkerService::Stub::ProfileComm, request));
  std::vector<CommMeasurement> measurements;
  for (const v1::CommMeasurement& message : response.measurements()) {
    NS_ASSIGN_OR_RETURN(CommMeasurement measurement, DecodeCommMeasurement(message));
    NS_RETURN_IF_ERROR(CheckSampleId(measurement.sample_id, sample.sample_id, impl_->address));
    measurements.push_back(std::move(measurement));
  }
  return measurements;
}

Status WorkerClient::CloseCommGroup(const OpenedCommGroup& group) const {
  CallPolicy policy = impl_->policy;
  policy.max_attempts = std::min(policy.max_attempts, 2);  // a group closes by itself as well
  return Retry(policy, [&] {
    return impl_
        ->Call(kQuickDeadline, &v1::WorkerService::Stub::CloseCommGroup,
               RequestOf<v1::CloseCommGroupRequest>(group), /*regardless=*/true)
        .status();
  });
}

void WorkerClient::Cancel() const { impl_->calls.CancelAll(); }

}  // namespace neuroshard
