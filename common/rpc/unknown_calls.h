// Calls that never come to a handler of ours: of methods that the server does not have, and with
// requests that gRPC cannot decode.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/server_interceptor.h>

#include "common/rpc/rpc_gate.h"

namespace neuroshard {

// UNIMPLEMENTED, as without it, but counted and logged. Takes no thread. `gate` must outlive it.
class UnknownCalls final : public grpc::CallbackGenericService {
 public:
  explicit UnknownCalls(RpcGate& gate) : gate_(gate) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  RpcGate& gate_;
};

// Counts, logs and names failures that gRPC answers in place of a handler. `gate` must outlive it.
class FailuresOfGrpc final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit FailuresOfGrpc(RpcGate& gate) : gate_(gate) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override;

 private:
  RpcGate& gate_;
};

}  // namespace neuroshard
