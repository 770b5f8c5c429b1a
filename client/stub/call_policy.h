// Limits of one call to a server, and how it is repeated.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <optional>
#include <string>

#include "common/base/random.h"
#include "common/base/status.h"

namespace neuroshard {

// A client's side of mutual TLS: contents of files in PEM.
struct ClientTls {
  std::string ca;           // whose servers are trusted
  std::string certificate;  // the caller's, with its chain
  std::string key;
  // What servers' certificates have to name; empty: the address's host.
  std::string server_name = "";
};

inline void WarnOnStandardError(const std::string& warning) {
  std::cerr << "warning: " + warning + '\n';
}

// Deadline, attempts and backoff of a call.
struct CallPolicy {
  std::optional<ClientTls> tls = std::nullopt;  // plaintext without
  // The deadline of each attempt.
  std::chrono::milliseconds deadline{600'000};
  // Attempts of a call that may be repeated without harm, while the server is UNAVAILABLE or asks
  // to be tried again. Others are tried once.
  int max_attempts = 4;
  std::chrono::milliseconds first_backoff{100};
  std::chrono::milliseconds longest_backoff{1'000};
  // Told once of each replica of a list that cannot be used; the others take its calls. The
  // default writes to standard error.
  std::function<void(const std::string&)> warn = WarnOnStandardError;
  // Told once a call, of the first wait that a server asks for and that is a second or more.
  std::function<void(const Status& why, std::chrono::milliseconds wait)> on_wait = nullptr;
};

// Exponential with "equal jitter": the n-th wait is uniform in [c/2, c] with c = min(first * 2^n,
// longest), so that clients that failed together do not come back together. Not thread-safe.
class Backoff {
 public:
  Backoff(std::chrono::milliseconds first, std::chrono::milliseconds longest, std::uint64_t seed)
      : first_(first), longest_(longest), ceiling_(first), random_(seed) {}

  std::chrono::milliseconds Next() {
    const std::int64_t ceiling_ms = std::min(ceiling_, longest_).count();
    ceiling_ = std::min(ceiling_ * 2, longest_);
    return std::chrono::milliseconds(random_.Between(ceiling_ms / 2, ceiling_ms));
  }

  // Called after a success: the next wait is a first one again.
  void Reset() { ceiling_ = first_; }

 private:
  std::chrono::milliseconds first_;
  std::chrono::milliseconds longest_;
  std::chrono::milliseconds ceiling_;
  Random random_;
};

// Calls `attempt` while it returns UNAVAILABLE, or says when to try again (google.rpc.RetryInfo, as
// an overloaded planner does), until the policy's attempts are used up. Waits in between with
// exponential backoff and jitter, on top of what the server asks for, if that is not longer than
// the policy's deadline. Returns the last result. Blocks.
Status Retry(const CallPolicy& policy, const std::function<Status()>& attempt);

}  // namespace neuroshard
