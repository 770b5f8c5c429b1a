#include "common/rpc/unknown_calls.h"

namespace neuroshard {
namespace {

class Refusal final : public grpc::ServerGenericBidiReactor {
 private:
  void OnDone() override { delete this; }
};

}  // namespace

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
