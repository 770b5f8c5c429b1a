#include "common/rpc/call_flood.h"

#include <grpc/grpc.h>
#include <grpc/support/alloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/rpc/status_mapping.h"

namespace neuroshard {
namespace {

using nlohmann::json;

// Below, nobody is reset: a client that makes plans one after the other.
constexpr std::int64_t kFewCalls = 10;

std::atomic<std::int64_t> calls_forgotten = 0;

// Takes what one of grpc_channelz_get_* returned; null for "there is no such thing".
json Parse(char* text) {
  if (text == nullptr) return nullptr;
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  gpr_free(text);
  return parsed;
}

json Part(const json& object, const char* key) { return object.value(key, json::object()); }

// Numbers are texts there, and those that are 0 are left out.
std::int64_t Number(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return 0;
  return std::strtoll(found->get_ref<const std::string&>().c_str(), nullptr, 10);
}

// Entries of pages of a list, which `page` gets from an id on.
template <typename Page, typename Visit>
void ForEach(const Page& page, const char* list, const char* id, const Visit& visit) {
  for (std::int64_t from = 0, next = 0;; from = next) {
    const json entries = Parse(page(from));
    if (!entries.is_object() || !entries.contains(list)) return;
    for (const json& entry : entries[list]) {
      visit(entry);
      next = Number(entry.contains("ref") ? Part(entry, "ref") : entry, id) + 1;
    }
    if (entries.value("end", false) || next <= from) return;
  }
}

template <typename Visit>
void ForEachServer(const Visit& visit) {
  ForEach([](std::int64_t from) { return grpc_channelz_get_servers(from); }, "server", "serverId",
          visit);
}

}  // namespace

void CallForgotten() { calls_forgotten.fetch_add(1, std::memory_order_relaxed); }

CallCounters CallCounters::OfGrpc() {
  CallCounters counters;
  counters.begun = [] {
    std::int64_t begun = 0;
    ForEachServer(
        [&](const json& server) { begun += Number(Part(server, "data"), "callsStarted"); });
    return begun;
  };
  counters.begun_by = [] {
    std::map<std::string, std::int64_t> begun;
    ForEachServer([&](const json& server) {
      const std::int64_t id = Number(Part(server, "ref"), "serverId");
      const auto sockets = [id](std::int64_t from) {
        return grpc_channelz_get_server_sockets(id, from, 0);
      };
      ForEach(sockets, "socketRef", "socketId", [&](const json& ref) {
        // "chttp2 ipv4:1.2.3.4:5"
        const std::string name = ref.value("name", "");
        const json socket = Parse(grpc_channelz_get_socket(Number(ref, "socketId")));
        if (!socket.is_object()) return;  // closed meanwhile
        begun[name.substr(name.find(' ') + 1)] =
            Number(Part(Part(socket, "socket"), "data"), "streamsStarted");
      });
    });
    return begun;
  };
  counters.forgotten = [] { return calls_forgotten.load(std::memory_order_relaxed); };
  return counters;
}

CallFlood::CallFlood(int max_streams, CallCounters counters)
    : max_streams_(max_streams),
      counters_(std::move(counters)),
      begun_(counters_.begun()),
      forgotten_(counters_.forgotten()) {}

std::set<std::string> CallFlood::ClientsToReset(std::size_t num_connections) {
  const std::int64_t begun_before = std::exchange(begun_, counters_.begun());
  const std::int64_t begun = begun_ - begun_before;
  const std::int64_t forgotten_before = std::exchange(forgotten_, counters_.forgotten());
  const std::int64_t forgotten = forgotten_ - forgotten_before;
  const bool quiet = std::max(begun, forgotten) < kQuietCalls;
  const std::int64_t leak = std::max(kLeakPerCount, quiet ? open_calls_ / 10 : 0);
  open_calls_ = std::max<std::int64_t>(0, open_calls_ + begun - forgotten - leak);

  const std::int64_t most =
      std::min(kMaxCalls, kSpareCalls + static_cast<std::int64_t>(num_connections) * max_streams_);
  const bool went_on = std::exchange(is_flooded_, open_calls_ > most) && is_flooded_;
  if (!is_flooded_) {
    begun_by_.clear();
    return {};
  }
  std::map<std::string, std::int64_t> since = counters_.begun_by();
  const auto before = std::exchange(begun_by_, since);
  // While those of a flood that is over are being forgotten, the busiest is none of its clients.
  if (!went_on || begun - forgotten <= kLeakPerCount) return {};
  std::int64_t busiest = 0;
  for (auto& [client, calls] : since) {
    if (const auto found = before.find(client); found != before.end()) calls -= found->second;
    busiest = std::max(busiest, calls);
  }
  std::set<std::string> clients;
  for (const auto& [client, calls] : since) {
    if (calls >= kFewCalls && 2 * calls >= busiest) clients.insert(client);
  }
  return clients;
}

namespace {

class Refusal final : public grpc::ServerGenericBidiReactor {
 private:
  void OnDone() override { delete this; }
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
      const bool failed = !status.ok() && !left;
      if (failed && trailers.find(kRequestIdKey) == trailers.end()) {
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

}  // namespace

grpc::experimental::Interceptor* FailuresOfGrpc::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* call) {
  return new EndOfCall(gate_, *call);  // gRPC's
}

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
