#include "common/rpc/rpc_server.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/server_interceptor.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <string_view>
#include <thread>
#include <utility>

#include "common/base/printable_text.h"
#include "common/observe/listen_address.h"
#include "common/rpc/deadline.h"
#include "common/rpc/flood/call_flood.h"
#include "common/rpc/status_mapping.h"

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

// Files, metrics, processes of devices: what connections leave of the descriptors.
constexpr int kDescriptorsForOthers = 100;

// The handshakes of TLS and HTTP/2 together may take this long; a client on the same continent
// needs less than one.
constexpr int kHandshakeTimeoutMs = 10'000;

// Longer than a search may take.
constexpr int kConnectionGraceMs = 600'000;

// The series of a service's methods, before their first calls.
void DeclareMethods(const std::string& service, RpcMetrics& metrics) {
  const auto* const descriptor =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(service);
  if (descriptor == nullptr) return;
  for (int i = 0; i < descriptor->method_count(); ++i) {
    metrics.Declare(fmt::format("/{}/{}", service, descriptor->method(i)->name()),
                    descriptor->method(i)->name());
  }
}

// A server without TLS stays on loopback unless it was told otherwise.
Status CheckNotOpen(const RpcServerOptions& options, const ListenAddress& address) {
  if (options.tls.has_value() || options.insecure) return absl::OkStatus();
  const StatusOr<bool> loopback = IsLoopback(address);
  if (!loopback.ok()) {
    return Unavailable("cannot listen on {}: {}", options.listen, Message(loopback.status()));
  }
  if (*loopback) return absl::OkStatus();
  return FailedPrecondition(
      "{} can be reached from other hosts, and without TLS everybody there may call this server: "
      "state tls in the configuration, listen on 127.0.0.1, or say --insecure",
      options.listen);
}

// Where gRPC's own lines go, which would be no JSON among lines that are. Process-wide, as its log
// is; the logger outlives the server, and the server takes it back.
std::atomic<const Logger*> g_log_of_grpc{nullptr};

void LogLineOfGrpc(gpr_log_func_args* line) {
  const Logger* const logger = g_log_of_grpc.load();
  if (logger == nullptr) return;
  const auto log = line->severity == GPR_LOG_SEVERITY_ERROR ? &Logger::Warn : &Logger::Debug;
  const std::string_view file = line->file;
  ((*logger).*log)("grpc",
                   {{"source", fmt::format("{}:{}", file.substr(file.rfind('/') + 1), line->line)},
                    {"message", Printable(line->message, 500)}});
}

class Refusal final : public grpc::ServerGenericBidiReactor {
 private:
  void OnDone() override { delete this; }
};

// Answers UNIMPLEMENTED to methods that the server does not have, as gRPC does without it, but
// counted and logged. Takes no thread.
class UnknownCalls final : public grpc::CallbackGenericService {
 public:
  explicit UnknownCalls(RpcGate& gate) : gate_(gate) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    const CallIdentity identity = IdentifyCall(*context);
    gate_.RefusedOutside(identity, context->method(), absl::UnimplementedError("no such method"));
    context->AddTrailingMetadata(kRequestIdKey, identity.request_id);
    auto* const refusal = new Refusal;  // gRPC's
    // Clients have words of their own for a server that says nothing more.
    refusal->Finish({grpc::StatusCode::UNIMPLEMENTED, ""});
    return refusal;
  }

 private:
  RpcGate& gate_;
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
      // Our handlers name the request. Who leaves is no failure; where somebody who watches health
      // does, gRPC ends the call with UNKNOWN or, before it has read the request, INTERNAL.
      const bool ends_watch = status.error_code() == grpc::StatusCode::UNKNOWN ||
                              status.error_code() == grpc::StatusCode::INTERNAL;
      const bool left =
          status.error_code() == grpc::StatusCode::CANCELLED ||
          (ends_watch && std::string_view(call_.method()) == "/grpc.health.v1.Health/Watch");
      if (!status.ok() && !left && trailers.find(kRequestIdKey) == trailers.end()) {
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

// Counts, logs and names failures that gRPC answers in place of a handler.
class FailuresOfGrpc final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit FailuresOfGrpc(RpcGate& gate) : gate_(gate) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override {
    return new EndOfCall(gate_, *call);  // gRPC's
  }

 private:
  RpcGate& gate_;
};

// visit(key, member, least, most) for the options of the section `rpc`; without limits, yes or no.
template <typename Visit>
void ForEachRpcOption(const Visit& visit) {
  using Options = RpcServerOptions;
  constexpr std::int64_t kHourMs = 3'600'000;
  visit("max_in_flight", &Options::max_in_flight, 1, 10'000);
  // gRPC takes the limit as an int.
  visit("max_message_bytes", &Options::max_message_bytes, 1024, std::numeric_limits<int>::max());
  visit("accept_compressed", &Options::accept_compressed);
  visit("max_streams_per_connection", &Options::max_streams_per_connection, 1, 10'000);
  visit("max_spare_threads", &Options::max_spare_threads, 1, 10'000);
  visit("max_connections", &Options::max_connections, 1, 1'000'000);
  visit("max_connection_idle_ms", &Options::max_connection_idle_ms, 0, 24 * kHourMs);
  visit("max_connection_age_ms", &Options::max_connection_age_ms, 0, 24 * kHourMs);
  visit("min_ping_interval_ms", &Options::min_ping_interval_ms, 10, kHourMs);
  visit("drain_notice_ms", &Options::drain_notice_ms, 0, kHourMs);
  visit("drain_grace_ms", &Options::drain_grace_ms, 0, kHourMs);
}

}  // namespace

ConfigReader ReadRpcServerOptions(ConfigReader& root, RpcServerOptions* options) {
  ReadListenAddress(root, "listen", EmptyAddress::kIsAFault, &options->listen);
  root.Read("insecure", &options->insecure);
  if (std::optional<ConfigReader> tls = root.SectionIfGiven("tls")) {
    options->tls = ReadServerTls(*tls);
  }
  ConfigReader rpc = root.Section("rpc");
  ForEachRpcOption([&](const char* key, auto member, auto... limits) {
    if constexpr (sizeof...(limits) == 0) {
      rpc.Read(key, &(options->*member));
    } else {
      rpc.Read(key, &(options->*member), {limits...});
    }
  });
  return rpc;
}

void AddFaultsOfStart(const RpcServerOptions& options, Violations& faults) {
  AddFaultIfTaken("listen", options.listen, faults);
  if (const auto address = ParseListenAddress(options.listen); address.ok()) {
    const Status open = CheckNotOpen(options, *address);
    if (open.code() == absl::StatusCode::kFailedPrecondition) faults.Add("listen", Message(open));
  }
  if (!options.tls.has_value()) return;
  for (const Violation& fault :
       Violations::FromStatus(ReadTlsMaterial(options.tls->files).status())) {
    faults.Add(fault.field, fault.description);
  }
}

Logger WithOptions(const RpcServerOptions& options, const Logger& logger) {
  std::string roles;
  if (options.tls.has_value()) {
    for (const auto& [role, patterns] : options.tls->roles) {
      if (!patterns.empty()) roles += fmt::format("{}{}", roles.empty() ? "" : ",", ToText(role));
    }
  }
  const ServerTls tls = options.tls.value_or(ServerTls());
  Logger with = logger.With({{"listen", options.listen},
                             {"insecure", options.insecure},
                             {"tls", options.tls.has_value()},
                             {"tls.certificate", tls.files.certificate},
                             {"tls.key", tls.files.key},
                             {"tls.client_ca", tls.files.client_ca},
                             {"tls.reload_s", tls.reload_s},
                             {"tls.roles", roles}});
  ForEachRpcOption([&](const char* key, auto member, auto...) {
    with = with.With({{fmt::format("rpc.{}", key), options.*member}});
  });
  return with;
}

void WarnIfOpen(const RpcServerOptions& options, const Logger& logger) {
  const auto address = ParseListenAddress(options.listen);
  if (options.tls.has_value() || !address.ok() || IsLoopback(*address).value_or(false)) return;
  logger.Warn("insecure", {{"address", options.listen},
                           {"reason", "no TLS: whoever reaches this address may call the server"}});
}

RpcServer::RpcServer(const RpcServerOptions& options, RpcGate& gate)
    : options_(options), gate_(gate), unknown_calls_(std::make_unique<UnknownCalls>(gate)) {}

StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcServerOptions& options,
                                                      const std::vector<HostedService>& services,
                                                      RpcGate& gate) {
  NS_ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(options.listen));
  NS_RETURN_IF_ERROR(CheckNotOpen(options, address));
  // Callers whose texts are not UTF-8 would write lines of protobuf's own into the log.
  google::protobuf::SetLogHandler(nullptr);
  g_log_of_grpc.store(&gate.logger());
  gpr_set_log_function(LogLineOfGrpc);
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (options.tls.has_value()) {
    NS_ASSIGN_OR_RETURN(credentials, MakeTlsCredentials(*options.tls, gate));
  }
  auto sockets = ListenOnEach(address);
  if (!sockets.ok()) {
    return Unavailable("cannot listen on {}: {}", options.listen, Message(sockets.status()));
  }
  address.port = sockets->front().address.port;
  // Both are process-wide switches of gRPC and idempotent.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  grpc::ServerBuilder builder;
  auto entry = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 1);  // for CallFlood
  // A connection that is silent from the start does not keep its place.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  // A worker that measures sends nothing for minutes; pings go on all the same.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A tenth less than stated, since pings do not arrive as evenly as they are sent.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             options.min_ping_interval_ms - options.min_ping_interval_ms / 10);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
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
  for (const HostedService& hosted : services) {
    builder.RegisterService(hosted.service);
    DeclareMethods(hosted.name, gate.metrics());
  }

  std::unique_ptr<RpcServer> server(new RpcServer(options, gate));
  builder.RegisterCallbackGenericService(server->unknown_calls_.get());
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<FailuresOfGrpc>(gate));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) {
    return Internal("cannot serve on {}: gRPC did not start", options.listen);
  }
  // gRPC knows only the server as a whole ("") by itself.
  for (const HostedService& hosted : services) {
    server->server_->GetHealthCheckService()->SetServingStatus(hosted.name, true);
  }
  server->port_ = address.port;
  server->address_ = ToText(address);
  server->entry_ = std::move(entry);
  const int descriptors = std::max(1, RaiseDescriptorLimit() - kDescriptorsForOthers);
  NS_ASSIGN_OR_RETURN(
      server->acceptor_,
      ConnectionAcceptor::Start(
          *std::move(sockets),
          {.max_connections = std::min(options.max_connections, descriptors),
           .max_streams_per_connection = options.max_streams_per_connection},
          [entry = server->entry_.get()](int fd) {
            grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
            connection.fd = fd;
            entry->HandleNewConnection(&connection);
          },
          gate, CallCounters::OfGrpc()));
  return server;
}

RpcServer::~RpcServer() {
  gate_.StopAdmitting();
  gate_.StopRunningCalls();
  acceptor_.reset();
  if (server_ != nullptr) server_->Shutdown(DeadlineIn(milliseconds(0)));
  if (address_.starts_with(kUnixPrefix)) unlink(address_.c_str() + kUnixPrefix.size());
  const Logger* mine = &gate_.logger();
  g_log_of_grpc.compare_exchange_strong(mine, nullptr);
}

void RpcServer::SetReady(const std::string& service, bool ready) {
  // After a drain has begun gRPC keeps every service NOT_SERVING.
  server_->GetHealthCheckService()->SetServingStatus(service, ready);
}

void RpcServer::RequestDrain() {
  const MutexLock lock(mutex_);
  drain_requested_ = true;
  drain_was_requested_.notify_all();
}

bool RpcServer::HealthAnswers(milliseconds limit) {
  grpc::GenericStub stub(server_->InProcessChannel({}));
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(limit));
  grpc::CompletionQueue queue;
  grpc::Slice of_the_server;  // an empty message: no service is named
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                          grpc::ByteBuffer(&of_the_server, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  return queue.Next(&tag, &ok) && ok && status.ok();
}

void RpcServer::Wait() {
  manager_.Tell("READY=1");
  const auto period = manager_.watchdog_period();
  {
    MutexLock lock(mutex_);
    while (!drain_requested_) {
      if (!period.has_value()) {
        lock.Wait(drain_was_requested_);
      } else if (!lock.WaitUntil(drain_was_requested_,
                                 std::chrono::steady_clock::now() + *period)) {
        lock.Unlock();
        if (HealthAnswers(*period)) manager_.Tell("WATCHDOG=1");
        lock.Lock();
      }
    }
  }
  manager_.Tell("STOPPING=1");
  server_->GetHealthCheckService()->Shutdown();
  std::this_thread::sleep_for(milliseconds(options_.drain_notice_ms));
  gate_.StopAdmitting();
  gate_.StopRunningCalls();
  acceptor_.reset();
  server_->Shutdown(DeadlineIn(milliseconds(options_.drain_grace_ms)));
  server_->Wait();
}

}  // namespace neuroshard
