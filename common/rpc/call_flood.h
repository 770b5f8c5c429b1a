// CallFlood notices clients that begin calls faster than the server can end them. UnknownCalls and
// FailuresOfGrpc tell of the calls that never come to a handler of ours: of methods that the server
// does not have, and with requests that gRPC cannot decode.
//
// HTTP/2's limit of streams does not count those that their client has reset (CVE-2023-44487), and
// gRPC 1.51 has no other: it reads on while there is something to read, so that handlers, which
// could count calls, do not come to run. Two connections make a server of two cores larger by half
// a GiB a second. What gRPC counts by itself, for channelz, says when that begins.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/server_interceptor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "common/rpc/rpc_gate.h"

namespace neuroshard {

// Counts of the calls of all servers of a process.
struct CallCounters {
  // Begun since the process runs.
  std::function<std::int64_t()> begun;
  // Begun on each connection since it is there, by its client as gRPC writes it ("ipv4:1.2.3.4:5").
  std::function<std::map<std::string, std::int64_t>()> begun_by;
  // Calls of which gRPC has let go, so that what they took is free. Those whose headers gRPC
  // refuses (without :method, :path, :authority or te) are never counted here.
  std::function<std::int64_t()> forgotten;

  // As channelz and CallForgotten() count them.
  static CallCounters OfGrpc();
};

// gRPC has let go of a call, of whatever method and server. Any thread.
void CallForgotten();

// A leaky bucket of calls: those that begin fill it, those that are forgotten empty it, and some
// leak out at each count, for calls of which nobody tells when they are forgotten. One thread at a
// time.
class CallFlood {
 public:
  // So many calls may be open beside those that connections may have: streams that were reset a
  // moment ago. About 130 MiB.
  static constexpr std::int64_t kSpareCalls = 10'000;
  // However many connections there are; about 650 MiB.
  static constexpr std::int64_t kMaxCalls = 50'000;
  static constexpr std::int64_t kLeakPerCount = 100;
  // While fewer begin and fewer are forgotten at a count, a tenth of the bucket leaks: nothing comes
  // any more, and there is nothing left to forget. A flood begins some 5,000 on 2 cores.
  static constexpr std::int64_t kQuietCalls = 250;

  // `max_streams` a connection.
  CallFlood(int max_streams, CallCounters counters);

  // What happened since the last call, which should be some 50 ms ago. The clients whose
  // connections must be reset: none unless more calls are open than kMaxCalls, or than kSpareCalls
  // and what `num_connections` may have, and they become more; then those that began at least half
  // as many as the busiest, so that others stay. The second call in a flood is the first that can
  // tell them.
  std::set<std::string> ClientsToReset(std::size_t num_connections);
  // As of the last ClientsToReset. Who would connect should wait.
  bool is_flooded() const { return is_flooded_; }
  // An estimate: fewer than there are by what leaked.
  std::int64_t open_calls() const { return open_calls_; }

 private:
  const int max_streams_;
  const CallCounters counters_;
  std::int64_t begun_;
  std::int64_t forgotten_;
  std::int64_t open_calls_ = 0;
  bool is_flooded_ = false;
  std::map<std::string, std::int64_t> begun_by_;  // as of the last ClientsToReset, in a flood
};

// Answers UNIMPLEMENTED, as gRPC does without it, but counted and logged. Takes no thread. `gate`
// must outlive it.
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
