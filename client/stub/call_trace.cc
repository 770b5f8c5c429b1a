#include "client/stub/call_trace.h"

#include <cstdlib>
#include <string>

#include "common/observe/trace_context.h"

namespace neuroshard {
namespace {

TraceContext TraceOfProcess() {
  const char* const given = std::getenv("TRACEPARENT");
  return (given == nullptr ? std::nullopt : ParseTraceparent(given)).value_or(NewTrace());
}

}  // namespace

void AddTrace(grpc::ClientContext& context) {
  static const TraceContext& trace = *new TraceContext(TraceOfProcess());
  static const std::string& request_id = *new std::string(MakeRequestId());
  context.AddMetadata(kTraceparentKey, ToText(NextStep(trace)));
  context.AddMetadata(kRequestIdKey, request_id);
}

}  // namespace neuroshard
