#include "bench/crowd.h"

#include <grpcpp/alarm.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "common/rpc/deadline.h"
#include "common/rpc/status_mapping.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr char kShardPlan[] = "/neuroshard.v1.PlannerService/ShardPlan";
constexpr milliseconds kWithoutAdvice{250};
constexpr milliseconds kConnectLimit{10'000};

std::int64_t NowNs() {
  return nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::int64_t Ns(milliseconds duration) { return nanoseconds(duration).count(); }

// Each waits for one event of the queue at a time: its alarm or its answer.
class Crowd {
 public:
  Crowd(const CrowdOptions& options, const grpc::ByteBuffer& request)
      : options_(options), request_(request) {}

  Status Connect() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    for (int i = 0; i < options_.callers; ++i) {
      auto channel = grpc::CreateCustomChannel(options_.planner, grpc::InsecureChannelCredentials(),
                                               arguments);
      if (!channel->WaitForConnected(DeadlineIn(kConnectLimit))) {
        return Unavailable("{}: caller {} cannot connect", options_.planner, i);
      }
      callers_.push_back(std::make_unique<Caller>());
      callers_.back()->index = i;
      callers_.back()->stub = std::make_unique<grpc::GenericStub>(std::move(channel));
    }
    return absl::OkStatus();
  }

  std::vector<CrowdCall> Run() {
    const std::int64_t begin_ns = NowNs();
    end_ns_ = begin_ns + Ns(options_.length);
    for (const auto& caller : callers_) {
      WaitUntil(*caller, begin_ns + Ns(options_.spread) * caller->index / options_.callers);
    }
    void* tag = nullptr;
    bool ok = false;
    while (waiting_ > 0 && queue_.Next(&tag, &ok)) {
      --waiting_;
      Caller& caller = *static_cast<Caller*>(tag);
      caller.context == nullptr ? Begin(caller) : End(caller);
    }
    return std::move(calls_);
  }

 private:
  struct Caller {
    int index = 0;
    std::unique_ptr<grpc::GenericStub> stub;
    grpc::Alarm alarm;
    std::int64_t due_ns = 0;
    std::int64_t began_ns = 0;
    // The context of the caller's call; null while there is none.
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer answer;
    grpc::Status status;
  };

  void WaitUntil(Caller& caller, std::int64_t due_ns) {
    caller.due_ns = due_ns;
    if (due_ns >= end_ns_) return;
    const auto in = std::chrono::ceil<milliseconds>(nanoseconds(due_ns - NowNs()));
    ++waiting_;
    caller.alarm.Set(&queue_, DeadlineIn(std::max(in, milliseconds(0))), &caller);
  }

  void Begin(Caller& caller) {
    caller.context = std::make_unique<grpc::ClientContext>();
    caller.context->set_deadline(DeadlineIn(options_.deadline));
    caller.answer.Clear();
    caller.began_ns = NowNs();
    caller.reader =
        caller.stub->PrepareUnaryCall(caller.context.get(), kShardPlan, request_, &queue_);
    caller.reader->StartCall();
    ++waiting_;
    caller.reader->Finish(&caller.answer, &caller.status, &caller);
  }

  void End(Caller& caller) {
    const std::int64_t now_ns = NowNs();
    const std::optional<milliseconds> advice = RetryAfterOf(FromGrpc(caller.status));
    calls_.push_back({.caller = caller.index,
                      .due_ns = caller.due_ns,
                      .began_ns = caller.began_ns,
                      .ended_ns = now_ns,
                      .code = caller.status.error_code(),
                      .retry_after = advice});
    caller.reader.reset();
    caller.context.reset();
    WaitUntil(caller, caller.status.ok() ? now_ns : now_ns + Ns(advice.value_or(kWithoutAdvice)));
  }

  const CrowdOptions options_;
  const grpc::ByteBuffer request_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<Caller>> callers_;
  std::vector<CrowdCall> calls_;
  std::int64_t end_ns_ = 0;
  int waiting_ = 0;  // callers that wait for an event
};

}  // namespace

StatusOr<std::vector<CrowdCall>> RunCrowd(const CrowdOptions& options,
                                          const v1::ShardPlanRequest& request) {
  const grpc::Slice bytes(request.SerializeAsString());
  Crowd crowd(options, grpc::ByteBuffer(&bytes, 1));
  NS_RETURN_IF_ERROR(crowd.Connect());
  return crowd.Run();
}

}  // namespace neuroshard
