// A connected rank of a group over TCP.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "kernels/api/collective.h"
#include "kernels/tcp/ring_schedule.h"
#include "kernels/tcp/tcp_mesh.h"

namespace neuroshard {

// Calls come from one thread, Abort from any. An exchange that fails breaks the group for good.
class TcpCommunicator final : public Communicator {
 public:
  // `network` is what Network says.
  TcpCommunicator(const CommunicatorSpec& spec, std::map<std::string, std::string> network,
                  std::shared_ptr<TcpMesh> mesh)
      : spec_(spec), network_(std::move(network)), mesh_(std::move(mesh)) {}

  int rank() const override { return spec_.rank; }
  int world_size() const override { return spec_.world_size; }

  // Counts and blocks out of range, or larger than reserved, are INVALID_ARGUMENT and leave the
  // group whole.
  Status Reserve(const AllToAllCounts& counts) override;
  Status AllToAll(const AllToAllCounts& counts) override;
  Status ReserveBlocks(Collective collective, std::int64_t block_bytes) override;
  Status RunBlocks(Collective collective, std::int64_t block_bytes) override;
  std::map<std::string, std::string> Network() const override { return network_; }
  Status Barrier() override;
  StatusOr<double> Max(double value) override;
  void Abort() override { mesh_->Abort(); }

  std::span<std::byte> SendBuffer() override { return Part(RingBuffer::kInput); }
  std::span<const std::byte> ReceiveBuffer() const override { return buffers_[1]; }

 private:
  using BufferBytes = std::array<std::int64_t, 3>;  // by RingBuffer

  StatusOr<BufferBytes> BuffersOfBlocks(Collective collective, std::int64_t block_bytes) const;
  Status ReserveBytes(const BufferBytes& bytes);
  Status CheckReserved(const BufferBytes& bytes) const;
  // A part of a buffer; without a size, the rest of it.
  std::span<std::byte> Part(RingBuffer buffer, std::size_t begin = 0,
                            std::size_t bytes = std::dynamic_extent) {
    return std::span(buffers_[static_cast<std::size_t>(buffer)]).subspan(begin, bytes);
  }
  Status RunRing(Collective collective, std::size_t block_bytes);
  StatusOr<double> RunMax(std::string_view what, double value);
  // The next exchange, as TcpMesh::Run. A failure says what it was, and breaks the group.
  Status Exchange(std::string_view what, std::span<Transfer> transfers, TcpMesh::TimePoint deadline,
                  ExchangeWork work = {});
  TcpMesh::TimePoint Deadline() const { return std::chrono::steady_clock::now() + spec_.timeout; }

  const CommunicatorSpec spec_;
  const std::map<std::string, std::string> network_;
  const std::shared_ptr<TcpMesh> mesh_;
  std::array<std::vector<std::byte>, 3> buffers_;  // by RingBuffer
  Status broken_;                                  // OK while the group is whole
};

}  // namespace neuroshard
