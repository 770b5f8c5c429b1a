// Collectives between GPUs through NCCL.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ip_network.h"
#include "common/base/status.h"
#include "common/domain/backend_names.h"
#include "kernels/api/collective.h"
#include "kernels/cuda/cuda_gpu.h"
#include "kernels/machine/machine.h"
#include "kernels/nccl/nccl_rank.h"

namespace neuroshard {

// Makes ranks that live on one device. Rank 0's address is NCCL's unique id in hexadecimal; those
// of the others say nothing. NCCL authenticates nobody and chooses its network interface itself
// (NCCL_SOCKET_IFNAME): use it on a network that only the job's hosts reach. The unique id holds
// the socket that all other ranks connect to.
class NcclBackend final : public CollectiveBackend {
 public:
  // `networks`: where rank 0 may be; none: anywhere. `clock`: whose steady clock the ranks read.
  NcclBackend(std::shared_ptr<const NcclLibrary> library, int device,
              std::vector<IpNetwork> networks = {}, std::string clock = SteadyClockName())
      : library_(std::move(library)),
        device_(device),
        networks_(std::move(networks)),
        clock_(std::move(clock)) {}

  std::string name() const override { return std::string(kNccl); }
  std::map<std::string, std::string> details() const override;
  StatusOr<std::unique_ptr<PendingCommunicator>> Open(const CommunicatorSpec& spec) const override;

 private:
  const std::shared_ptr<const NcclLibrary> library_;
  const int device_;
  const std::vector<IpNetwork> networks_;
  const std::string clock_;
};

}  // namespace neuroshard
