// UnknownCalls: the calls of methods that the server does not have.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

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

}  // namespace neuroshard
