// CallIdentity: who calls, and under which ids a call is found again.
#pragma once

#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>

#include <map>
#include <string>

#include "common/observe/logger.h"
#include "common/observe/trace_context.h"

namespace neuroshard {

struct CallIdentity {
  // Of the caller's metadata (x-request-id), where that is a header's request id; else made here.
  std::string request_id;
  // A step of the caller's trace (traceparent), or of a new one.
  TraceContext trace;
  // The first subject alternative name of its certificate, else the certificate's common name;
  // without a certificate its address, without port. What quotas go by.
  std::string caller;
  // Its address with port, as gRPC writes it: "ipv4:127.0.0.1:4711". Empty where it is not known.
  std::string peer;

  // `logger` with request_id, trace_id, caller and peer in every line.
  Logger Log(const Logger& logger) const;
};

// Before the handler runs, or in it.
CallIdentity IdentifyCall(const grpc::ServerContextBase& context);

// The same for a call of which only these are known; `auth` may be null.
CallIdentity IdentifyCall(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata,
                          const grpc::AuthContext* auth, const std::string& peer);

}  // namespace neuroshard
