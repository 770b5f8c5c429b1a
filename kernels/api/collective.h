// Collectives between ranks that may live in different processes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// One rank's part in a collective.
struct Exchange {
  // Only of an all-to-all: bytes per peer, world_size entries each; the own entry is copied locally.
  std::vector<std::int64_t> send_bytes = {};
  std::vector<std::int64_t> receive_bytes = {};
  // The other collectives treat all ranks alike: they are over world_size blocks of block_bytes
  // each, one a rank and in rank order:
  // - kReduceScatter: from all blocks of every rank to the sum over the ranks of the own block;
  // - kAllGather: from the own block to the blocks of all ranks;
  // - kAllReduce: from all blocks of every rank to the sum over the ranks of all blocks.
  // Sums are of fp32 numbers, block_bytes a multiple of 4 then. The same values on every rank.
  Collective collective = Collective::kAllToAll;
  std::int64_t block_bytes = 0;

  bool operator==(const Exchange&) const = default;
};

// One rank's end of a connected group. Calls of one object come from one thread, except Abort. Once
// a call fails the group is broken: every later call fails too, and the object can only be
// destroyed; the device stays usable.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // Allocates (and touches) buffers for the largest exchange that follows. RESOURCE_EXHAUSTED when
  // they do not fit.
  virtual Status Reserve(const Exchange& exchange) = 0;
  // The collective over the reserved buffers, which are used from their beginning; what is sent
  // stays as it is. Returns when this rank has sent and received everything. ABORTED after the
  // timeout or when a peer is gone; INVALID_ARGUMENT for an exchange that BytesOf refuses, or that
  // was not reserved.
  virtual Status Run(const Exchange& exchange) = 0;

  // `wait` is called once, before the next exchange begins, and is expected to return after
  // `takes`. A device that can hold back enqueued work enqueues the exchange first and starts it
  // when `wait` returns, so that enqueueing is not part of its time; others call `wait` at once.
  // What is held back for longer than `takes` and 200 ms begins by itself, and that exchange fails
  // (ABORTED): its time would be wrong.
  virtual void StartNextWhen(std::chrono::nanoseconds /*takes*/, std::function<void()> wait) {
    wait();
  }

  // Time of the last exchange by the device's clock, from this rank's own start to its own
  // completion; none where the device has no such clock and the caller's has to do.
  virtual std::optional<double> LastExchangeMs() const { return std::nullopt; }

  // The network over which this rank meets its peers, as properties of records
  // (common/domain/measurement.h); empty where the backend does not know.
  virtual std::map<std::string, std::string> Network() const { return {}; }

  virtual Status Barrier() = 0;
  // Waits until all ranks have come. The moment that they count their start offsets from, up to
  // some milliseconds ahead: the same one on ranks that can agree on it, else when this rank came
  // out of the barrier.
  virtual StatusOr<TimePoint> Meet(const Clock& clock) {
    NS_RETURN_IF_ERROR(Barrier());
    return clock.Now();
  }
  // Largest value over all ranks; for agreeing on when to stop.
  virtual StatusOr<double> Max(double value) = 0;

  // Breaks the group from any thread, at any time while the object lives: a call that waits for a
  // peer fails with ABORTED soon instead of at its timeout, and so do later ones.
  virtual void Abort() = 0;

  // The reserved buffers, peers in rank order without gaps as the counts of an exchange say, or
  // blocks; for tests. Empty when the host cannot see them.
  virtual std::span<std::byte> SendBuffer() { return {}; }
  virtual std::span<const std::byte> ReceiveBuffer() const { return {}; }
};

// The two steps of building a Communicator (proto/neuroshard/v1/worker.proto, OpenCommGroup and
// ConnectCommGroup).
class PendingCommunicator {
 public:
  virtual ~PendingCommunicator() = default;
  // What the other ranks need in order to reach this one; opaque.
  virtual const std::string& address() const = 0;
  // Whether this rank would connect to it: INVALID_ARGUMENT says why not, e.g. because the operator
  // did not list its network.
  virtual Status CheckAddress(const std::string& address) const = 0;
  // addresses[r] is rank r's. Blocks until all ranks are connected, or about the timeout passed
  // (ABORTED). Call once. INVALID_ARGUMENT: wrong addresses, none of which was connected to.
  virtual StatusOr<std::unique_ptr<Communicator>> Connect(std::vector<std::string> addresses) = 0;
  // Makes Connect fail soon. May be called from any thread, as Communicator::Abort.
  virtual void Abort() = 0;
};

// A rank's part in a group. `timeout` bounds the connection and each collective.
struct CommunicatorSpec {
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{30000};
};
// INVALID_ARGUMENT names what is out of range.
Status CheckSpec(const CommunicatorSpec& spec);

// An implementation of collectives; makes this process's end of groups. Thread-safe.
class CollectiveBackend {
 public:
  virtual ~CollectiveBackend() = default;
  virtual std::string name() const = 0;                            // of backend_names.h
  virtual std::map<std::string, std::string> details() const = 0;  // library version, ...
  virtual StatusOr<std::unique_ptr<PendingCommunicator>> Open(
      const CommunicatorSpec& spec) const = 0;
};

// Bytes that one rank sends and receives in all.
struct ExchangeBytes {
  std::int64_t send = 0;
  std::int64_t receive = 0;
};

// INVALID_ARGUMENT for an all-to-all unless both sides have one entry a rank, none negative, with
// sums that can be counted, and the rank sends itself what it receives from itself.
// INVALID_ARGUMENT for blocks that are negative, too large to count or, where they are summed, not
// of whole numbers.
StatusOr<ExchangeBytes> BytesOf(const Exchange& exchange, int rank, int world_size);

// Where each peer's part begins in a buffer without gaps.
std::vector<std::int64_t> PartOffsets(const std::vector<std::int64_t>& bytes);

}  // namespace neuroshard
