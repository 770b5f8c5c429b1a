// Groups of ranks over real sockets, for tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/tcp/tcp_backend.h"

namespace neuroshard::testing {

constexpr std::chrono::milliseconds kLong{20000};  // never reached unless something is broken

inline std::vector<std::unique_ptr<PendingCommunicator>> OpenAll(
    int world_size, std::chrono::milliseconds timeout) {
  const TcpBackend backend{CollectiveOptions{}};
  std::vector<std::unique_ptr<PendingCommunicator>> pending;
  for (int rank = 0; rank < world_size; ++rank) {
    auto opened = backend.Open({.rank = rank, .world_size = world_size, .timeout = timeout});
    EXPECT_TRUE(opened.ok()) << opened.status();
    pending.push_back(std::move(opened).value());
  }
  return pending;
}

inline std::vector<std::string> Addresses(
    const std::vector<std::unique_ptr<PendingCommunicator>>& pending) {
  std::vector<std::string> addresses;
  for (const auto& rank : pending) addresses.push_back(rank->address());
  return addresses;
}

// A whole group in one process, each rank's calls on a thread of its own.
class Group {
 public:
  explicit Group(int world_size, std::chrono::milliseconds timeout = kLong) : ranks_(world_size) {
    auto pending = OpenAll(world_size, timeout);
    const std::vector<std::string> addresses = Addresses(pending);
    ForEach([&](int rank) {
      auto connected = pending[rank]->Connect(addresses);
      ASSERT_TRUE(connected.ok()) << connected.status();
      ranks_[rank] = std::move(connected).value();
    });
  }

  void ForEach(const std::function<void(int)>& body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size(); ++rank) threads.emplace_back([&body, rank] { body(rank); });
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  Communicator& operator[](int rank) { return *ranks_[rank]; }
  void Kill(int rank) { ranks_[rank].reset(); }

 private:
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

}  // namespace neuroshard::testing
