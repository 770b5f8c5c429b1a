#include "common/rpc/unknown_calls.h"

#include <string_view>

#include "common/rpc/call_flood.h"
#include "common/rpc/status_mapping.h"

namespace neuroshard {
namespace {

class Refusal final : public grpc::ServerGenericBidiReactor {
 private:
  void OnDone() override { delete this; }
};

class EndOfCall final : public grpc::experimental::Interceptor {
 public:
  EndOfCall(RpcGate& gate, grpc::experimental::ServerRpcInfo& call) : gate_(gate), call_(call) {}
  ~EndOfCall() override { CallForgotten(); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      auto& trailers = *methods->GetSendTrailingMetadata();
      const grpc::Status status = methods->GetSendStatus();
      // Our handlers name the request. Who watches health and leaves is no failure; gRPC says
      // UNKNOWN then.
      const auto left = std::string_view(call_.method()) == "/grpc.health.v1.Health/Watch"
                            ? grpc::StatusCode::UNKNOWN
                            : grpc::StatusCode::CANCELLED;
      const bool failed = !status.ok() && status.error_code() != left;
      if (failed && trailers.find(kRequestIdKey) == trailers.end()) {
        const CallIdentity identity = IdentifyCall(*call_.server_context());
        gate_.RefusedOutside(identity, call_.method(), FromGrpc(status));
        trailers.emplace(kRequestIdKey, identity.request_id);
      }
    }
    methods->Proceed();
  }

 private:
  RpcGate& gate_;
  grpc::experimental::ServerRpcInfo& call_;
};

}  // namespace

grpc::experimental::Interceptor* FailuresOfGrpc::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* call) {
  return new EndOfCall(gate_, *call);  // gRPC's
}

grpc::ServerGenericBidiReactor* UnknownCalls::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  const CallIdentity identity = IdentifyCall(*context);
  gate_.RefusedOutside(identity, context->method(), absl::UnimplementedError("no such method"));
  context->AddTrailingMetadata(kRequestIdKey, identity.request_id);
  auto* const refusal = new Refusal;  // gRPC's
  // Clients have words of their own for a server that says nothing more.
  refusal->Finish({grpc::StatusCode::UNIMPLEMENTED, ""});
  return refusal;
}

}  // namespace neuroshard
