// The ids that this process's calls carry, so that their lines in the servers' logs are found.
#pragma once

#include <grpcpp/client_context.h>

namespace neuroshard {

// One request id and one trace for the process, which is one command: of the environment variable
// TRACEPARENT where that is a W3C traceparent, else new ones. Each call is a step of the trace.
// Thread-safe.
void AddTrace(grpc::ClientContext& context);

}  // namespace neuroshard
