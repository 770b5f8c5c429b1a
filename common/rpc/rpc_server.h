// Hosts gRPC services: listening, health, reflection, limits and the drain.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/base/violations.h"
#include "common/observe/logger.h"
#include "common/rpc/connection_acceptor.h"
#include "common/rpc/process_signals.h"
#include "common/rpc/rpc_gate.h"
#include "common/rpc/server_security.h"
#include "common/text/config_reader.h"

namespace grpc {
class Server;
class Service;
namespace experimental {
class ExternalConnectionAcceptor;
}  // namespace experimental
}  // namespace grpc

namespace neuroshard {

// Address, limits and drain of a server.
struct RpcServerOptions {
  // HOST:PORT; port 0 lets the system choose.
  std::string listen = "127.0.0.1:0";
  // Mutual TLS and roles; without, every caller may do everything.
  std::optional<ServerTls> tls = std::nullopt;
  // Whether a server without TLS may listen where other hosts reach it.
  bool insecure = false;
  // Handlers that run at the same time; more are RESOURCE_EXHAUSTED. For RpcGate.
  int max_in_flight = 64;
  // Largest message received; larger ones are RESOURCE_EXHAUSTED. Compressed ones are UNIMPLEMENTED
  // unless they are accepted: gRPC decompresses before it looks at the size.
  std::int64_t max_message_bytes = 64 * kMiB;
  bool accept_compressed = false;
  // Calls of one connection at the same time; a client that wants more waits.
  int max_streams_per_connection = 100;
  // Threads of gRPC for methods that block one each (sync ones); beyond, calls are
  // RESOURCE_EXHAUSTED. In addition to max_in_flight, for cheap calls.
  int max_spare_threads = 32;
  // Open connections; more are reset. Descriptors limit it, too: where fewer can be open, a hundred
  // are left for everything else.
  int max_connections = 4096;
  // A connection without calls is closed after this; 0: never. A client opens another when needed.
  std::int64_t max_connection_idle_ms = 300'000;
  // Any connection is closed after about this (running calls get ten minutes), so that clients
  // spread over replicas that are new; 0: never.
  std::int64_t max_connection_age_ms = 3'600'000;
  // How often a client may ping, in calls and without; one that does it more often is told
  // ENHANCE_YOUR_CALM and cut off (gRPC's GRPC_ARG_KEEPALIVE_TIME_MS of the client).
  int min_ping_interval_ms = 10'000;
  // The time between health turning NOT_SERVING and new calls being refused, so that balancers can
  // look away.
  std::int64_t drain_notice_ms = 0;
  // What running calls get to finish after that.
  std::int64_t drain_grace_ms = 10'000;
};

// Keys `listen` and `insecure` and the section `tls` of `root`, and keys named like the other
// options of its section `rpc`, which is returned for options that only one of our servers has.
ConfigReader ReadRpcServerOptions(ConfigReader& root, RpcServerOptions* options);

// What keeps a server with these options from starting now: an address that is taken, files of TLS
// that cannot be used, an address beyond loopback without TLS.
void AddFaultsOfStart(const RpcServerOptions& options, Violations& faults);

// `logger` with all of these options in every line, for a server's line of options.
Logger WithOptions(const RpcServerOptions& options, const Logger& logger);

// Logs a warning where everybody who reaches the server may call it.
void WarnIfOpen(const RpcServerOptions& options, const Logger& logger);

// A service, which must outlive the server, and its name for health checks.
struct HostedService {
  std::string name;  // full name, what health answers for
  grpc::Service* service;
};

// Starting -> Serving -> Draining -> Stopped. Serves grpc.health.v1 (for "" and for every service
// by name) and reflection besides the given services.
//
//   CatchProcessSignals();                                             // process_signals.h
//   RpcGate gate(options.max_in_flight, clock, rpc_metrics, logger);
//   PlannerServiceImpl service(..., gate);
//   NS_ASSIGN_OR_RETURN(auto server, RpcServer::Start(
//       options, {{v1::PlannerService::service_full_name(), &service}}, gate));
//   SignalThread signals({.on_terminate = [&] { server->RequestDrain(); }});
//   server->Wait();
class RpcServer {
 public:
  // INVALID_ARGUMENT for a malformed address, and for files of TLS that cannot be used;
  // FAILED_PRECONDITION for a server beyond loopback without TLS or `insecure`; UNAVAILABLE when it
  // cannot be bound: two servers never share a port. Services and gate must outlive the server.
  static StatusOr<std::unique_ptr<RpcServer>> Start(const RpcServerOptions& options,
                                                    const std::vector<HostedService>& services,
                                                    RpcGate& gate);
  // Stops at once, cancelling running calls, unless Wait has returned.
  ~RpcServer();

  // HOST:PORT with the port that was bound.
  const std::string& address() const { return address_; }
  int port() const { return port_; }

  // What health says of a hosted service (readiness) from now on; SERVING at first. The server as a
  // whole ("") is SERVING until it drains (liveness). Any thread.
  void SetReady(const std::string& service, bool ready);

  // Starts the drain and returns at once. Idempotent; any thread, but not a signal handler.
  void RequestDrain();

  // Tells the service manager that the server serves, and while health answers, that it is alive.
  // Blocks until a drain was requested and is over: health NOT_SERVING, drain_notice_ms, refuse new
  // calls, stop running searches with their best so far, drain_grace_ms for running calls, then
  // cancel what is left.
  void Wait();

 private:
  RpcServer(const RpcServerOptions& options, RpcGate& gate);
  // Whether gRPC's health service answers within `limit`, asked without a socket.
  bool HealthAnswers(std::chrono::milliseconds limit);

  const RpcServerOptions options_;
  const ServiceManager manager_ = ServiceManager::FromEnvironment();
  RpcGate& gate_;
  const std::unique_ptr<grpc::CallbackGenericService> unknown_calls_;
  std::string address_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> entry_;  // of server_
  std::unique_ptr<ConnectionAcceptor> acceptor_;  // calls entry_, so it ends before server_ does
  Mutex mutex_;
  std::condition_variable drain_was_requested_;
  bool drain_requested_ NS_GUARDED_BY(mutex_) = false;
};

}  // namespace neuroshard
