// A connected group of Gloo ranks.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "gloo/transport/unbound_buffer.h"
#include "kernels/api/collective.h"
#include "kernels/gloo/gloo_mesh.h"

namespace neuroshard {

// A rank of a group over Gloo's TCP transport. Calls come from one thread, Abort from any. An
// exchange that fails breaks it for good.
class GlooCommunicator final : public Communicator {
 public:
  explicit GlooCommunicator(std::shared_ptr<GlooMesh> mesh) : mesh_(std::move(mesh)) {}

  int rank() const override { return mesh_->rank; }
  int world_size() const override { return mesh_->size; }

  // Counts and blocks out of range, or larger than reserved, are INVALID_ARGUMENT and leave the
  // group whole.
  Status Reserve(const AllToAllCounts& counts) override;
  Status AllToAll(const AllToAllCounts& counts) override;
  Status ReserveBlocks(Collective collective, std::int64_t block_bytes) override;
  Status RunBlocks(Collective collective, std::int64_t block_bytes) override;
  std::map<std::string, std::string> Network() const override { return mesh_->network(); }
  Status Barrier() override;
  StatusOr<double> Max(double value) override;
  void Abort() override;

  std::span<std::byte> SendBuffer() override { return send_bytes_; }
  std::span<const std::byte> ReceiveBuffer() const override { return receive_bytes_; }

 private:
  struct BufferBytes {
    std::int64_t send = 0;
    std::int64_t receive = 0;
    std::int64_t scratch = 0;
  };

  StatusOr<BufferBytes> BuffersOfBlocks(Collective collective, std::int64_t block_bytes) const;
  Status ReserveBytes(const BufferBytes& bytes);
  Status CheckReserved(const BufferBytes& bytes) const;
  // Runs `exchange`; what it throws, and Abort, break the group and become ABORTED.
  Status Guard(std::string_view what, const std::function<void()>& exchange);
  void Exchange(const AllToAllCounts& counts);
  void RunRing(Collective collective, std::int64_t block_bytes);
  std::unique_ptr<::gloo::transport::UnboundBuffer> Register(std::span<std::byte> bytes);

  // Declared before what Gloo's I/O thread may still write through.
  std::vector<std::byte> send_bytes_;
  std::vector<std::byte> receive_bytes_;
  std::vector<std::byte> scratch_bytes_;
  std::shared_ptr<GlooMesh> mesh_;
  std::unique_ptr<::gloo::transport::UnboundBuffer> send_buffer_;
  std::unique_ptr<::gloo::transport::UnboundBuffer> receive_buffer_;
  std::unique_ptr<::gloo::transport::UnboundBuffer> scratch_buffer_;
  std::atomic<bool> aborted_{false};
  Status broken_;  // OK while the group is whole
};

}  // namespace neuroshard
