#include "common/rpc/rpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "common/observe/listen_address.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;

// Clients may send longer error texts and ids than the 8 KiB default; a request id is bounded far
// below this.
constexpr int kMaxMetadataBytes = 64 * 1024;

// A client whose host died without closing its connection is noticed within half a minute, so that
// its calls are cancelled and what they hold (a worker's device) is free again.
constexpr int kKeepaliveTimeMs = 20'000;
constexpr int kKeepaliveTimeoutMs = 10'000;

// Longer than a search may take.
constexpr int kConnectionGraceMs = 600'000;

}  // namespace

ConfigReader ReadRpcServerOptions(ConfigReader& root, RpcServerOptions* options) {
  constexpr std::int64_t kHourMs = 3'600'000;
  ReadListenAddress(root, "listen", EmptyAddress::kIsAFault, &options->listen);
  ConfigReader rpc = root.Section("rpc");
  rpc.Read("max_in_flight", &options->max_in_flight, {1, 10'000});
  // gRPC takes the limit as an int.
  rpc.Read("max_message_bytes", &options->max_message_bytes,
           {1024, std::numeric_limits<int>::max()});
  rpc.Read("accept_compressed", &options->accept_compressed);
  rpc.Read("max_streams_per_connection", &options->max_streams_per_connection, {1, 10'000});
  rpc.Read("max_spare_threads", &options->max_spare_threads, {1, 10'000});
  rpc.Read("max_connection_idle_ms", &options->max_connection_idle_ms, {0, 24 * kHourMs});
  rpc.Read("max_connection_age_ms", &options->max_connection_age_ms, {0, 24 * kHourMs});
  rpc.Read("drain_notice_ms", &options->drain_notice_ms, {0, kHourMs});
  rpc.Read("drain_grace_ms", &options->drain_grace_ms, {0, kHourMs});
  return rpc;
}

RpcServer::RpcServer(const RpcServerOptions& options, RpcGate& gate)
    : options_(options), gate_(gate) {}

StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcServerOptions& options,
                                                      const std::vector<HostedService>& services,
                                                      RpcGate& gate) {
  NS_ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(options.listen));
  // Asked first, because gRPC's own account of a busy port is a page of internals on stderr.
  if (address.port != 0) {
    const auto socket = ListenOn(address);
    if (!socket.ok()) {
      return Unavailable("cannot listen on {}: {}", options.listen, Message(socket.status()));
    }
    close(socket->fd);
  }
  // Both are process-wide switches of gRPC and idempotent.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port);
  // Otherwise a second server would share the port and steal half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // A worker that measures sends nothing for minutes; pings go on all the same.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_streams_per_connection);
  if (options.max_connection_idle_ms > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                               static_cast<int>(options.max_connection_idle_ms));
  }
  if (options.max_connection_age_ms > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                               static_cast<int>(options.max_connection_age_ms));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, kConnectionGraceMs);
  }
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, options.accept_compressed);
  }
  grpc::ResourceQuota quota;
  quota.SetMaxThreads(options.max_in_flight + options.max_spare_threads);
  builder.SetResourceQuota(quota);
  for (const HostedService& hosted : services) builder.RegisterService(hosted.service);

  std::unique_ptr<RpcServer> server(new RpcServer(options, gate));
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || port == 0) {
    return Unavailable("cannot listen on {}: {}", options.listen, WhyNotListening(address));
  }
  // gRPC knows only the server as a whole ("") by itself.
  for (const HostedService& hosted : services) {
    server->server_->GetHealthCheckService()->SetServingStatus(hosted.name, true);
  }
  address.port = port;
  server->port_ = port;
  server->address_ = ToText(address);
  return server;
}

RpcServer::~RpcServer() {
  gate_.StopAdmitting();
  gate_.StopRunningCalls();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
}

void RpcServer::RequestDrain() {
  const MutexLock lock(mutex_);
  drain_requested_ = true;
  drain_was_requested_.notify_all();
}

void RpcServer::Wait() {
  {
    MutexLock lock(mutex_);
    while (!drain_requested_) lock.Wait(drain_was_requested_);
  }
  server_->GetHealthCheckService()->SetServingStatus(false);
  std::this_thread::sleep_for(milliseconds(options_.drain_notice_ms));
  gate_.StopAdmitting();
  gate_.StopRunningCalls();
  server_->Shutdown(std::chrono::system_clock::now() + milliseconds(options_.drain_grace_ms));
  server_->Wait();
}

}  // namespace neuroshard
