// CallFlood notices clients that begin calls faster than the server can end them.
//
// HTTP/2's limit of streams does not count those that their client has reset (CVE-2023-44487), and
// gRPC 1.51 has no other: it reads on while there is something to read, so that handlers, which
// could count calls, do not come to run. Two connections make a server of two cores larger by half
// a GiB a second. What gRPC counts by itself, for channelz, says when that begins.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

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
  CallFlood(int max_streams, CallCounters counters)
      : max_streams_(max_streams),
        counters_(std::move(counters)),
        begun_(counters_.begun()),
        forgotten_(counters_.forgotten()) {}

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
  // After each ClientsToReset: memory of many calls goes back some counts after they are few.
  void ReturnMemory();
  bool owes_memory() const { return next_return_ > 0; }

 private:
  const int max_streams_;
  const CallCounters counters_;
  std::int64_t begun_;
  std::int64_t forgotten_;
  std::int64_t open_calls_ = 0;
  bool is_flooded_ = false;
  std::map<std::string, std::int64_t> begun_by_;  // as of the last ClientsToReset, in a flood
  int counts_of_few_ = 0;                         // since there were many calls
  int next_return_ = 0;                           // of memory, after so many counts; 0: none
};

// The inode of a socket; nothing where `fd` is none.
std::optional<ino_t> SocketInode(int fd);

// Resets the connection and drops what has come on it, but leaves the descriptor to gRPC, which then
// finds an error there. False where gRPC has closed it meanwhile, or descriptors have run out.
bool Disconnect(int fd, ino_t inode);

// The peer, as gRPC writes it: "ipv4:10.0.0.1:4711", "ipv6:%5B::1%5D:4711"; empty: there is none.
std::string PeerOf(int fd);

}  // namespace neuroshard
