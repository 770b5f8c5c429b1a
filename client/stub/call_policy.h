// Limits of one call to a server.
#pragma once

#include <chrono>
#include <functional>
#include <iostream>
#include <optional>
#include <string>

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
  // Of each attempt.
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

}  // namespace neuroshard
