#include "client/stub/compute_stream.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "client/stub/channel.h"
#include "common/codec/measurement_codec.h"
#include "common/rpc/deadline.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;

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
      return absl::DeadlineExceededError(fmt::format("worker at {}: no answer in time", address_));
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

std::unique_ptr<ComputeStream> MakeComputeStream(v1::WorkerService::Stub& stub,
                                                 const std::string& address, int device,
                                                 const MeasurementSettings& settings) {
  return std::make_unique<AsyncComputeStream>(stub, address, device, settings);
}

}  // namespace neuroshard
