// Memory pools: what is left for tables of every memory of a plan's ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/domain/plan_request.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// What all hosts together have of the memories that their ranks share (kSharedMemories): each as
// much as it has itself, and no more than the limits of its ranks add up to; 0 of devices. Sums
// saturate far below the type's end. O(ranks).
TierBytes SharedBytes(const Topology& topology);

// What is left of each rank's device beside its reserve, of each memory that the ranks of a host
// share, and of each rank's own limits of these. Every question takes O(1). Copies are independent.
class MemoryPools {
 public:
  explicit MemoryPools(const PlanRequest& request);

  // Whether so many more bytes of the rank's tables may be there; of a memory always if they are 0,
  // also on a rank whose reserve alone is too much.
  bool FitsIn(MemoryTier tier, int rank, const TierBytes& bytes) const {
    return bytes[tier] <= 0 || bytes[tier] <= Left(rank, tier);
  }
  bool FitsShared(int rank, const TierBytes& bytes) const {
    return std::ranges::all_of(
        kSharedMemories, [&](const auto& memory) { return FitsIn(memory.tier, rank, bytes); });
  }
  // The most that may be added for the rank; below 0 where more was added, or the reserve is more
  // than its device has.
  std::int64_t Left(int rank, MemoryTier tier) const {
    const Pool& pool = pools_[tier];
    if (pool.left_of_rank.empty()) return 0;
    const std::int64_t left = At(pool.left_of_rank, rank);
    if (pool.left_of_host.empty()) return left;
    return std::min(left, At(pool.left_of_host, host_of(rank)));
  }
  std::int64_t LeftOnDevice(int rank) const {
    return At(pools_[MemoryTier::kDevice].left_of_rank, rank);
  }
  TierBytes Left(int rank) const {
    TierBytes left = {};
    for (const auto& [tier, name] : kWords<MemoryTier>) left[tier] = Left(rank, tier);
    return left;
  }
  // Whether more was added for the rank than there is of a memory that it shares.
  bool SharesTooMuch(int rank) const {
    return has_shared_ && std::ranges::any_of(kSharedMemories, [&](const auto& memory) {
             return Left(rank, memory.tier) < 0;
           });
  }
  // sign: 1 or -1.
  void Add(int rank, const TierBytes& bytes, int sign = 1) {
    At(pools_[MemoryTier::kDevice].left_of_rank, rank) -= sign * bytes[MemoryTier::kDevice];
    if (!has_shared_) return;
    for (const SharedMemory& memory : kSharedMemories) {
      Pool& pool = pools_[memory.tier];
      if (bytes[memory.tier] == 0 || pool.left_of_rank.empty()) continue;
      At(pool.left_of_rank, rank) -= sign * bytes[memory.tier];
      At(pool.left_of_host, host_of(rank)) -= sign * bytes[memory.tier];
    }
  }

  int host_of(int rank) const { return At(host_of_rank_, rank); }

 private:
  // Both are empty where no host has any.
  struct Pool {
    std::vector<std::int64_t> left_of_rank;  // of its device, or of its own limit
    std::vector<std::int64_t> left_of_host;  // empty of devices
  };

  ByTier<Pool> pools_;
  std::vector<int> host_of_rank_;
  bool has_shared_ = false;
};

}  // namespace neuroshard
