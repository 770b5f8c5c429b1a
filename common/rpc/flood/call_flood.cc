#include "common/rpc/flood/call_flood.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace neuroshard {
namespace {

using nlohmann::json;

// Below, nobody is reset: a client that makes plans one after the other.
constexpr std::int64_t kFewCalls = 10;
// glibc keeps what calls had in its arenas, eight for each core: 600 MiB after 30,000 calls that
// were reset, nothing of it in use. After so many at a time it goes back, once there were fewer for
// so many counts; and again after twice as many, and so on, since on a busy host calls are forgotten
// long after they have ended.
constexpr std::int64_t kManyCalls = 1000;
constexpr int kCountsBeforeReturn = 20;
constexpr int kLastReturn = 64 * kCountsBeforeReturn;  // a minute

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

void CallFlood::ReturnMemory() {
  if (open_calls_ > kManyCalls) {
    counts_of_few_ = 0;
    next_return_ = kCountsBeforeReturn;
  } else if (next_return_ > 0 && ++counts_of_few_ == next_return_) {
    malloc_trim(0);
    next_return_ = next_return_ < kLastReturn ? 2 * next_return_ : 0;
  }
}

std::optional<ino_t> SocketInode(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) return std::nullopt;
  return status.st_ino;
}

bool Disconnect(int fd, ino_t inode) {
  const int same = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (same < 0) return false;
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  const bool done = SocketInode(same) == inode && connect(same, &nobody, sizeof nobody) == 0;
  close(same);
  return done;
}

std::string PeerOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  if (address.ss_family == AF_UNIX) return "unix:";
  char host[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
    return fmt::format("ipv4:{}:{}", host, ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], host, sizeof host);
    return fmt::format("ipv4:{}:{}", host, ntohs(v6.sin6_port));
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
  const std::string scope = v6.sin6_scope_id == 0 ? "" : fmt::format("%25{}", v6.sin6_scope_id);
  return fmt::format("ipv6:%5B{}{}%5D:{}", host, scope, ntohs(v6.sin6_port));
}

}  // namespace neuroshard
