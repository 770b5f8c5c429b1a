// CallFlood: notices clients that begin calls faster than the server can end them.
//
// HTTP/2's limit of streams does not count those that their client has reset (CVE-2023-44487), and
// gRPC 1.51 has no other: it reads on while there is something to read, so that handlers, which
// could count calls, do not come to run. Two connections make a server of two cores larger by half
// a GiB a second. What gRPC counts by itself, for channelz, says when that begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/rpc_gate.h"

namespace neuroshard {

// Calls of all servers of a process.
struct CallCounts {
  std::int64_t begun = 0;    // since the process runs
  std::int64_t running = 0;  // of these, those that have no status yet
};

// Where counts come from.
struct CallCounters {
  std::function<CallCounts()> calls;
  // Begun on each connection since it is there, by its client as gRPC writes it ("ipv4:1.2.3.4:5").
  std::function<std::map<std::string, std::int64_t>()> begun_by;
  // Of which gRPC has let go: what they took is free. A call takes its memory long after it has its
  // status while a flood lasts. Calls that end before their request is there are never counted.
  std::function<std::int64_t()> forgotten;

  // As channelz has them, and the gate, which outlives this.
  static CallCounters OfGrpc(const RpcGate& gate);
};

// A leaky bucket of calls: those that begin fill it, those that are forgotten empty it, and a few
// more leak out at each look, for calls of which nobody tells when they are forgotten. One thread at
// a time.
class CallFlood {
 public:
  // So many calls may be open beside those that connections may have: streams that were reset a
  // moment ago. About 130 MiB.
  static constexpr std::int64_t kSpareCalls = 10'000;
  // However many connections there are; about 650 MiB.
  static constexpr std::int64_t kMostCalls = 50'000;
  static constexpr std::int64_t kLeakPerLook = 100;
  // After so many looks at which next to nothing happened, no more calls are open than run.
  static constexpr int kQuietLooks = 10;

  // `max_streams` a connection.
  CallFlood(int max_streams, CallCounters counters)
      : max_streams_(max_streams), counters_(std::move(counters)) {}

  // What happened since the last call, which should be some 50 ms ago. The clients whose
  // connections must be reset: none unless more calls are open than kMostCalls, or than kSpareCalls
  // and what `num_connections` may have; then those that began at least half as many as the
  // busiest, so that others stay. The second call in a flood is the first that can tell them.
  std::vector<std::string> Look(std::size_t num_connections);
  // As of the last Look. Who would connect should wait.
  bool lasts() const { return lasts_; }
  // An estimate: fewer than there are by what leaked.
  std::int64_t open_calls() const { return open_calls_; }

 private:
  const int max_streams_;
  const CallCounters counters_;
  std::int64_t begun_ = 0;
  std::int64_t forgotten_ = 0;
  std::int64_t open_calls_ = 0;
  int quiet_looks_ = 0;
  bool lasts_ = false;
  std::map<std::string, std::int64_t> begun_by_;  // as of the last Look, in a flood
};

}  // namespace neuroshard
