// Host memory: what is left of the memory of hosts for tables that are not in device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/domain/topology.h"

namespace neuroshard {

// Of each host's pool, which its ranks share, and of each rank's own limit. Every question takes
// O(1). Copies are independent.
class HostMemory {
 public:
  explicit HostMemory(const Topology& topology);

  // Whether tables may be in host memory at all.
  bool present() const { return !left_of_host_.empty(); }
  // Whether so many more bytes of the rank's tables may be there; always if they are 0.
  bool Fits(int rank, std::int64_t bytes) const { return bytes <= 0 || bytes <= Left(rank); }
  // The most that may be added for the rank; below 0 where more was added.
  std::int64_t Left(int rank) const;
  void Add(int rank, std::int64_t bytes);

  int host_of(int rank) const { return host_of_rank_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::int64_t> left_of_host_;
  std::vector<std::int64_t> left_of_rank_;  // of its own limit
  std::vector<int> host_of_rank_;
};

}  // namespace neuroshard
